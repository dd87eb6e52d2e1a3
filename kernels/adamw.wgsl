// AdamW with decoupled weight decay, in place, and the gradient cleared for the next step:
//   g' = g * scale;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2
//   w = w (1 - lr * decay) - lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)
//
//   clip     [3]   norm, scale, ok, from grad_clip.wgsl
//   w, m, v  [n]   updated; left alone when ok = 0
//   g        [n]   in: gradient, out: 0
//
// Grid      one thread per element of an arena that holds many tensors end to end.
// Numerics  1 - b1 and 1 - b2 come from the host: in f32, 1 - 0.999 is off in the fifth digit.
// Paper     Loshchilov & Hutter 2019, arXiv:1711.05101; the order of operations is torch.optim.AdamW's.
// Checked   against adamw() in src/model/reference.ts by test/gpu/adamw.test.ts.

struct Params {
  n: u32,
  lr: f32,
  beta1: f32,
  beta2: f32,
  rest1: f32,        // 1 - beta1
  rest2: f32,        // 1 - beta2
  eps: f32,
  weightDecay: f32,
  correction1: f32,  // 1 - beta1^t
  correction2: f32,  // sqrt(1 - beta2^t)
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> clip: array<f32>;
@group(0) @binding(1) var<storage, read_write> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> g: array<f32>;
@group(0) @binding(3) var<storage, read_write> m: array<f32>;
@group(0) @binding(4) var<storage, read_write> v: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.n) { return; }
  let grad = g[i] * clip[1];
  g[i] = 0.0;
  if (clip[2] == 0.0) { return; }
  let first = params.beta1 * m[i] + params.rest1 * grad;
  let second = params.beta2 * v[i] + params.rest2 * grad * grad;
  m[i] = first;
  v[i] = second;
  w[i] = w[i] * (1.0 - params.lr * params.weightDecay)
    - params.lr / params.correction1 * first / (sqrt(second) / params.correction2 + params.eps);
}
