// Embedding lookup: x[n] = table[tokens[n]].
//
//   tokens  [N]      token ids below V
//   table   [rows, C]  tokens first .. first + rows - 1 of the vocabulary; all tokens if the table is one buffer
//   x       [N, C]     rows of other tokens stay unchanged
//
// Grid      one thread per element of x. Numerics: a copy, exact.
// Checked   against embedding() in src/extensions/verify/reference/ops.ts by test/gpu/embed.test.ts.

struct Params {
  N: u32,
  C: u32,
  first: u32,
  rows: u32,
}

override WG: u32 = 64u;

alias Weight = f32; // f16 if weights are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> tokens: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<Weight>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.N * params.C) { return; }
  let row = tokens[i / params.C] - params.first; // for a token before `first` this wraps to a number far above `rows`
  if (row >= params.rows) { return; }
  x[i] = f32(table[row * params.C + i % params.C]);
}
