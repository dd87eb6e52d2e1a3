// AdamW with decoupled weight decay, in place, and the gradient cleared for the next step:
//   g' = g * scale;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2
//   w = w (1 - lr * decay) - lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)
//
//   clip     [3]   norm, scale, ok, from grad_clip.wgsl
//   w, m, v  [n]   updated; unchanged if ok = 0
//   g        [n]   in: gradient, out: 0
//
// Grid      one thread per 4 elements, WG apart, of an arena of concatenated tensors.
// Numerics  the host computes 1 - b1 and 1 - b2, because in f32 1 - 0.999 is off in the fifth digit.
// Paper     Loshchilov & Hutter 2019, arXiv:1711.05101; the order of operations is torch.optim.AdamW's.
// Checked   against referenceAdamW() in src/extensions/verify/reference/model.ts by test/gpu/adamw.test.ts.

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

fn put(i: u32, moment: f32, square: f32, value: f32) {
  m[i] = moment;
  v[i] = square;
  w[i] = value;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let first = (wg.y * grid.x + wg.x) * 4u * WG + tid;
  if (first >= params.n) { return; }
  let next = first + vec4u(0u, 1u, 2u, 3u) * WG;
  let i = select(vec4u(first), next, next < vec4u(params.n)); // past the end: the first element again, which is not written yet
  let grad = vec4f(g[i.x], g[i.y], g[i.z], g[i.w]) * clip[1];
  g[i.x] = 0.0;
  g[i.y] = 0.0;
  g[i.z] = 0.0;
  g[i.w] = 0.0;
  if (clip[2] == 0.0) { return; }
  let moment = params.beta1 * vec4f(m[i.x], m[i.y], m[i.z], m[i.w]) + params.rest1 * grad;
  let square = params.beta2 * vec4f(v[i.x], v[i.y], v[i.z], v[i.w]) + params.rest2 * grad * grad;
  let old = vec4f(w[i.x], w[i.y], w[i.z], w[i.w]);
  let value = old * (1.0 - params.lr * params.weightDecay)
    - params.lr / params.correction1 * moment / (sqrt(square) / params.correction2 + params.eps);
  put(i.x, moment.x, square.x, value.x);
  put(i.y, moment.y, square.y, value.y);
  put(i.z, moment.z, square.z, value.z);
  put(i.w, moment.w, square.w, value.w);
}
