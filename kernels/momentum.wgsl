// Updates the momentum and replaces the gradient by the resulting update, which sgd.wgsl or Muon then uses:
//   d = g * scale + l2 w;  m = mu m + rest d;  g = direct d + again m
// torch.optim.SGD: rest 1, (direct, again) = (0, 1), with Nesterov (1, mu). Muon: rest 1 - mu, with Nesterov (1 - mu, mu).
//
//   clip  [3]  norm, scale, ok, from grad_clip.wgsl
//   w     [n]
//   g     [n]  in: gradient, out: update; unchanged, like m, if ok = 0
//   m     [n]  updated
//
// Grid      one thread per element.
// Checked   against referenceStep() in test/gpu/referenceOptimizers.ts by test/gpu/sgd_momentum.test.ts.

struct Params {
  n: u32,
  mu: f32,
  rest: f32,
  direct: f32,
  again: f32,
  l2: f32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> clip: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> g: array<f32>;
@group(0) @binding(3) var<storage, read_write> m: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.n || clip[2] == 0.0) { return; }
  let d = g[i] * clip[1] + params.l2 * w[i];
  m[i] = params.mu * m[i] + params.rest * d;
  g[i] = params.direct * d + params.again * m[i];
}
