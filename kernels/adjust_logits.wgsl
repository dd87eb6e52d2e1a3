// Changes logits by a request's settings, before sampling:
//   z_j = logits_j + bias_j
//   z_j = z_j > 0 ? z_j / r : z_j * r     if token j occurs in the prompt or this turn (r = repetition penalty)
//   z_j = z_j - frequency * count_j - presence * [count_j > 0]      count_j = times j was sampled this turn
//   z_j = FORBIDDEN                        if j is a stop token and fewer than minNewTokens were sampled
// Also writes the entry with which sample.wgsl samples from the changed row, and a flag if it samples at all.
//
//   logits    [R, V]
//   live      [rows, 4]     slot, row of logits, -, -; entries first .. first + n - 1 are changed
//   extras    [slots, 136]  r, presence, frequency (f32), minNewTokens, number of biases, -, -, -, then 64 x (token, bias f32)
//   counts    [slots, V]    bit 31: the token is in the prompt; below: times it was sampled
//   stops     [slots, 4]    stop token ids; 0xffffffff = none
//   state     [slots, 4]    -, -, tokens sampled, done flag
//   adjusted  [n, V]        written; row i stays unchanged if the slot is done
//   entries   [n, 4]        written: slot, row of adjusted (= i), row of logits, 1 = the slot still samples
//
// Grid      one workgroup per entry.
// Numerics  with neutral settings every value passes through unchanged, so log-probs stay the same bit for bit.
// Paper     Keskar et al., arXiv:1909.05858 (repetition penalty); the other two follow OpenAI's API. Same order as in vLLM.
// Checked   against adjustedLogits() in test/gpu/adjustReference.ts by test/gpu/adjust_logits.test.ts.

struct Params {
  first: u32,
  n: u32,
  V: u32,
}

override WG: u32 = 64u;

const EXTRA = 136u;
const FORBIDDEN = -1e30; // exp is 0 at any temperature, and arithmetic on it does not overflow

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> live: array<u32>;
@group(0) @binding(2) var<storage, read> extras: array<u32>;
@group(0) @binding(3) var<storage, read> counts: array<u32>;
@group(0) @binding(4) var<storage, read> stops: array<u32>;
@group(0) @binding(5) var<storage, read> state: array<u32>;
@group(0) @binding(6) var<storage, read_write> adjusted: array<f32>;
@group(0) @binding(7) var<storage, read_write> entries: array<u32>;
@group(0) @binding(8) var<uniform> params: Params;

var<workgroup> done: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = wg.y * grid.x + wg.x;
  if (i >= params.n) { return; }
  let V = params.V;
  let slot = live[(params.first + i) * 4u];
  let row = live[(params.first + i) * 4u + 1u];
  if (tid == 0u) {
    done = state[slot * 4u + 3u];
    entries[i * 4u] = slot;
    entries[i * 4u + 1u] = i;
    entries[i * 4u + 2u] = row;
    entries[i * 4u + 3u] = select(0u, 1u, done == 0u);
  }
  if (workgroupUniformLoad(&done) != 0u) { return; }
  let settings = slot * EXTRA;
  let repetition = bitcast<f32>(extras[settings]);
  let presence = bitcast<f32>(extras[settings + 1u]);
  let frequency = bitcast<f32>(extras[settings + 2u]);
  for (var j = tid; j < V; j += WG) { adjusted[i * V + j] = logits[row * V + j]; }
  storageBarrier();
  for (var b = tid; b < extras[settings + 4u]; b += WG) {
    adjusted[i * V + extras[settings + 8u + b * 2u]] += bitcast<f32>(extras[settings + 9u + b * 2u]);
  }
  storageBarrier();
  if (repetition != 1.0 || presence != 0.0 || frequency != 0.0) {
    for (var j = tid; j < V; j += WG) {
      let seen = counts[slot * V + j];
      if (seen == 0u) { continue; }
      let drawn = seen & 0x7fffffffu;
      let z = adjusted[i * V + j];
      adjusted[i * V + j] = select(z * repetition, z / repetition, z > 0.0) - frequency * f32(drawn) - select(0.0, presence, drawn > 0u);
    }
  }
  storageBarrier();
  if (tid < 4u && state[slot * 4u + 2u] < extras[settings + 3u]) {
    for (var s = tid; s < 4u; s += WG) {
      let stop = stops[slot * 4u + s];
      if (stop < V) { adjusted[i * V + stop] = FORBIDDEN; }
    }
  }
}
