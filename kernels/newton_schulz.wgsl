// Computes the polynomial of a Newton-Schulz step, by which the matrix is multiplied: y = a I + b gram + c y, with y = gram^2
// at the start.
//
//   gram  [d, d]
//   y     [d, d]  in: gram^2, out: the polynomial
//
// Grid      one thread per element.
// Paper     Jordan et al. 2024, https://kellerjordan.github.io/posts/muon.
// Checked   against orthogonalized() in test/gpu/referenceOptimizers.ts by test/gpu/normalize_newton_schulz.test.ts.

struct Params {
  d: u32,
  a: f32,
  b: f32,
  c: f32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> gram: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.d * params.d) { return; }
  let diagonal = select(0.0, params.a, i / params.d == i % params.d);
  y[i] = diagonal + params.b * gram[i] + params.c * y[i];
}
