// Second half of LoRA, added to the columns of the adapted modules:
//   y[n, gap(s) + j] += scale * sum over r of t[n, s * R + r] * b[r, j],   s = the module that column j belongs to.
//
//   t  [N, T]  x A of every adapted module side by side, T = modules * R
//   b  [R, J]  the modules' B side by side, without the columns of modules without an adapter
//   y  [N, Y]  read and written; q, k and v (or gate and up) are one matrix of Y columns
//
// Grid      one thread per 4 rows and one column j; threads in a row take neighbouring columns.
// Numerics  one thread sums each output over r in ascending order, from 0; the same bits for every N. B = 0 leaves y unchanged.
// Paper     LoRA, arXiv:2106.09685; `scale` of rank-stabilised LoRA: arXiv:2312.03732.
// Checked   against linear() in src/extensions/verify/reference/ops.ts by test/gpu/lora_up.test.ts.

struct Params {
  N: u32,
  R: u32,
  T: u32,
  J: u32,
  Y: u32,
  end0: u32, // columns j of module 0 end here, those of module 1 at end1; J for a missing module
  end1: u32,
  gap0: u32, // column of y minus column j, for each module
  gap1: u32,
  gap2: u32,
  scale: f32,
}

override WG: u32 = 64u;

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> t: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<Act>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  let j = i % params.J;
  let row = i / params.J * 4u;
  if (row >= params.N) { return; }
  let s = u32(j >= params.end0) + u32(j >= params.end1);
  let gap = select(select(params.gap2, params.gap1, s == 1u), params.gap0, s == 0u);
  let last = params.N - 1u;
  let at = vec4u(row, min(row + 1u, last), min(row + 2u, last), min(row + 3u, last)) * params.T + s * params.R;
  var sum = vec4f();
  var r = 0u;
  for (; r + 3u < params.R; r += 4u) { // four at a time, so that their loads wait together
    let place = r * params.J + j;
    let w = vec4f(b[place], b[place + params.J], b[place + 2u * params.J], b[place + 3u * params.J]);
    let t0 = vec4f(t[at.x + r], t[at.y + r], t[at.z + r], t[at.w + r]);
    let t1 = vec4f(t[at.x + r + 1u], t[at.y + r + 1u], t[at.z + r + 1u], t[at.w + r + 1u]);
    let t2 = vec4f(t[at.x + r + 2u], t[at.y + r + 2u], t[at.z + r + 2u], t[at.w + r + 2u]);
    let t3 = vec4f(t[at.x + r + 3u], t[at.y + r + 3u], t[at.z + r + 3u], t[at.w + r + 3u]);
    sum += t0 * w.x;
    sum += t1 * w.y;
    sum += t2 * w.z;
    sum += t3 * w.w;
  }
  for (; r < params.R; r++) {
    sum += vec4f(t[at.x + r], t[at.y + r], t[at.z + r], t[at.w + r]) * b[r * params.J + j];
  }
  let out = row * params.Y + gap + j;
  y[out] = Act(f32(y[out]) + params.scale * sum.x);
  if (row + 1u < params.N) { y[out + params.Y] = Act(f32(y[out + params.Y]) + params.scale * sum.y); }
  if (row + 2u < params.N) { y[out + 2u * params.Y] = Act(f32(y[out + 2u * params.Y]) + params.scale * sum.z); }
  if (row + 3u < params.N) { y[out + 3u * params.Y] = Act(f32(y[out + 3u * params.Y]) + params.scale * sum.w); }
}
