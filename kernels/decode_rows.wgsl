// Builds the model's input rows of one decode step from the state of the live slots, on the GPU.
// Row i is the last token of its slot. A stopped slot repeats the same token, which changes nothing.
//
//   live       [n, 4]      slot, -, -, -
//   slots      [slots, 4]  first kv row of the prompt, prompt length, first kv row of the slot's own region, -
//   state      [slots, 4]  last token, position of the next token, -, -
//   tokens     [n]         written
//   positions  [n]         written
//   kvRows     [n]         written
//   ranges     [n, 4]      written, as attention.wgsl reads them
//
// Grid      one thread per live sequence.
// Checked   against a loop in test/gpu/decode_rows.test.ts.

struct Params {
  n: u32,
}

@group(0) @binding(0) var<storage, read> live: array<u32>;
@group(0) @binding(1) var<storage, read> slots: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> positions: array<u32>;
@group(0) @binding(5) var<storage, read_write> kvRows: array<u32>;
@group(0) @binding(6) var<storage, read_write> ranges: array<u32>;
@group(0) @binding(7) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x;
  if (i >= params.n) { return; }
  let slot = live[i * 4u];
  let prefix = slots[slot * 4u];
  let promptLength = slots[slot * 4u + 1u];
  let own = slots[slot * 4u + 2u];
  let position = state[slot * 4u + 1u] - 1u;
  tokens[i] = state[slot * 4u];
  positions[i] = position;
  kvRows[i] = own + position - promptLength;
  ranges[i * 4u] = prefix;
  ranges[i * 4u + 1u] = prefix + promptLength;
  ranges[i * 4u + 2u] = own;
  ranges[i * 4u + 3u] = own + position - promptLength + 1u;
}
