// Divides a matrix by its Frobenius norm, in place: x = x / max(norm, eps), norm = sqrt(sum partial).
//
//   partial  [256]  from grad_norm.wgsl over x
//   x        [n]
//
// Grid      one thread per element; every thread sums the partial sums in the same order.
// Checked   against orthogonalized() in test/gpu/referenceOptimizers.ts by test/gpu/normalize_newton_schulz.test.ts.

struct Params {
  n: u32,
  eps: f32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> partial: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.n) { return; }
  var sum = 0.0;
  for (var s = 0u; s < 256u; s++) { sum += partial[s]; }
  x[i] = x[i] / max(sqrt(sum), params.eps);
}
