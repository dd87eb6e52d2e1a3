// Speculative decoding, after a token was sampled: holds every sequence whose token differs from the guess, because the later
// rows were computed from the guess. After the last row, all held sequences are released.
//
//   entries  [rows, 4]   slot, -, guessed token (0xffffffff = no more guesses), -; first .. first + n - 1 are read
//   state    [slots, 4]  in/out: last token, -, -, done flag: 0 live, 3 held; other values stay unchanged
//
// Grid      one thread per entry; each slot has at most one entry.
// Paper     Leviathan et al., arXiv:2211.17192. Guesses are deterministic and samples are keyed by position (sample.wgsl), so
//           accepting a guess that equals the sample results in the same tokens as plain decoding, not only in their distribution.
// Checked   by test/gpu/accept_draft.test.ts and test/gpu/rolloutSpeculative.test.ts.

struct Params {
  first: u32,
  n: u32,
  resume: u32,  // 1 = release
}

const HELD = 3u;

@group(0) @binding(0) var<storage, read> entries: array<u32>;
@group(0) @binding(1) var<storage, read_write> state: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= params.n) { return; }
  let entry = (params.first + id.x) * 4u;
  let slot = entries[entry] * 4u;
  let flag = state[slot + 3u];
  if (params.resume == 1u) {
    if (flag == HELD) { state[slot + 3u] = 0u; }
    return;
  }
  if (flag == 0u && state[slot] != entries[entry + 2u]) { state[slot + 3u] = HELD; }
}
