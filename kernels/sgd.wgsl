// Gradient descent in place, by the gradient or its sign; also clears the gradient for the next step:
//   d = g' + l2 w, or its sign;  w = w (1 - lr * decay) - lr d;  g' = g * scale, or g itself if it is an update already
//
//   clip  [3]  norm, scale, ok, from grad_clip.wgsl
//   w     [n]  updated; unchanged if ok = 0
//   g     [n]  in: gradient or update, out: 0
//
// Grid      one thread per element.
// Paper     Bernstein et al. 2018, arXiv:1802.04434 (signSGD).
// Checked   against referenceStep() in test/gpu/referenceOptimizers.ts by test/gpu/sgd_momentum.test.ts.

struct Params {
  n: u32,
  isUpdate: u32,
  sign: u32,
  lr: f32,
  decay: f32,
  l2: f32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> clip: array<f32>;
@group(0) @binding(1) var<storage, read_write> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> g: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.n) { return; }
  let given = g[i];
  g[i] = 0.0;
  if (clip[2] == 0.0) { return; }
  let scaled = select(given * clip[1], given, params.isUpdate == 1u);
  let d = scaled + params.l2 * w[i];
  w[i] = w[i] * (1.0 - params.lr * params.decay) - params.lr * select(d, sign(d), params.sign == 1u);
}
