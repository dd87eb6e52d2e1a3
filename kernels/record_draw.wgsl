// After sample.wgsl has sampled from changed logits: converts its record to the model's own distribution.
//   log-prob  becomes that of the token under the unchanged logits at the sampling temperature, as the trainer computes it
//   log mass  becomes this log-prob minus the log-prob under the distribution that the token was sampled from
// Then log-prob - log mass is the log-prob of the sampled token, whatever changed the logits: truncation, masks, penalties or
// biases. Also counts the token and stores the entropy of the unchanged distribution.
//
//   entries  [n, 4]        slot, -, row of logits, 1 = a token was sampled (adjust_logits.wgsl)
//   logits   [R, V]        unchanged
//   stats    [R, 2]        their lse and entropy at the sampling temperature
//   control  [slots, 8]    -, -, -, 1/T (f32 bits; 0 = greedy)
//   state    [slots, 4]    last token, -, tokens sampled, -
//   drawn    [slots, CAP, 3]   in/out: token, log-prob bits, log mass bits; the last token is changed
//   counts   [slots, V]    in/out: the token's count + 1
//   details  [slots, CAP, 17]  written: entropy bits at 0 (top_logprobs.wgsl writes the rest)
//
// Grid      one thread per entry.
// Checked   against logProbsOf() in test/gpu/sampleReference.ts by test/gpu/record_draw.test.ts.

struct Params {
  n: u32,
  V: u32,
  cap: u32,
}

const DETAIL = 17u;

@group(0) @binding(0) var<storage, read> entries: array<u32>;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read> stats: array<f32>;
@group(0) @binding(3) var<storage, read> control: array<u32>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read_write> drawn: array<u32>;
@group(0) @binding(6) var<storage, read_write> counts: array<u32>;
@group(0) @binding(7) var<storage, read_write> details: array<u32>;
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
  if (i >= params.n || entries[i * 4u + 3u] == 0u) { return; }
  let slot = entries[i * 4u];
  let row = entries[i * 4u + 2u];
  let token = state[slot * 4u];
  let place = slot * params.cap + state[slot * 4u + 2u] - 1u;
  let invT = bitcast<f32>(control[slot * 8u + 3u]);
  let logProb = logits[row * params.V + token] * select(invT, 1.0, invT == 0.0) - stats[row * 2u];
  let drawnFrom = bitcast<f32>(drawn[place * 3u + 1u]) - bitcast<f32>(drawn[place * 3u + 2u]);
  drawn[place * 3u + 1u] = bitcast<u32>(logProb);
  drawn[place * 3u + 2u] = bitcast<u32>(logProb - drawnFrom);
  counts[slot * params.V + token] += 1u;
  details[place * DETAIL] = bitcast<u32>(stats[row * 2u + 1u]);
}
