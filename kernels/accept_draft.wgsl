// Speculative decoding, after a draw: holds every sequence whose token is not the one that was guessed, since the rows after
// it were computed from the guess. When the last row has been drawn from, lets all that are held go on.
//
//   entries  [rows, 4]   slot, -, token guessed to be drawn (0xffffffff = no more guesses), -; first .. first + n - 1 are read
//   state    [slots, 4]  in/out: last token, -, -, done flag: 0 live, 3 held; other values are left alone
//
// Grid      one thread per entry; a slot has at most one among them.
// Paper     Leviathan et al., arXiv:2211.17192. Guesses are certain and draws keyed by position (sample.wgsl), so accepting
//           a guess that equals the draw gives the very tokens of plain decoding, not only their distribution.
// Checked   by test/gpu/accept_draft.test.ts and test/gpu/rolloutSpeculative.test.ts.

struct Params {
  first: u32,
  n: u32,
  resume: u32,  // 1 = let go on
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
