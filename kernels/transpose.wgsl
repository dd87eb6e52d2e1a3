// Transposes a matrix: y[c, n] = x[n, c].
//
//   x  [N, C]
//   y  [C, N]  written
//
// Grid      one thread per EACH columns of a row, threads in a row write neighbouring elements: an integer division costs
//           more than the access to the element, so each thread does several elements.
// Checked   against a loop in test/gpu/transpose.test.ts.

struct Params {
  N: u32,
  C: u32,
}

override WG: u32 = 64u;
const EACH = 8u;

alias Weight = f32; // f16 if weights are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> x: array<Weight>;
@group(0) @binding(1) var<storage, read_write> y: array<Weight>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  let first = i / params.N * EACH;
  let n = i % params.N;
  let end = min(first + EACH, params.C);
  for (var c = first; c < end; c++) { y[c * params.N + n] = x[n * params.C + c]; }
}
