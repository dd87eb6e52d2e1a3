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
  let at0 = row * params.T + s * params.R;
  let at1 = min(row + 1u, last) * params.T + s * params.R;
  let at2 = min(row + 2u, last) * params.T + s * params.R;
  let at3 = min(row + 3u, last) * params.T + s * params.R;
  var sum0 = 0.0;
  var sum1 = 0.0;
  var sum2 = 0.0;
  var sum3 = 0.0;
  var r = 0u;
  for (; r + 3u < params.R; r += 4u) { // four at a time, so that their loads wait together
    let i = vec4u(r, r + 1u, r + 2u, r + 3u);
    let w = vec4f(b[i.x * params.J + j], b[i.y * params.J + j], b[i.z * params.J + j], b[i.w * params.J + j]);
    let t0 = vec4f(t[at0 + i.x], t[at0 + i.y], t[at0 + i.z], t[at0 + i.w]);
    let t1 = vec4f(t[at1 + i.x], t[at1 + i.y], t[at1 + i.z], t[at1 + i.w]);
    let t2 = vec4f(t[at2 + i.x], t[at2 + i.y], t[at2 + i.z], t[at2 + i.w]);
    let t3 = vec4f(t[at3 + i.x], t[at3 + i.y], t[at3 + i.z], t[at3 + i.w]);
    for (var c = 0u; c < 4u; c++) {
      sum0 += t0[c] * w[c];
      sum1 += t1[c] * w[c];
      sum2 += t2[c] * w[c];
      sum3 += t3[c] * w[c];
    }
  }
  for (; r < params.R; r++) {
    let w = b[r * params.J + j];
    sum0 += t[at0 + r] * w;
    sum1 += t[at1 + r] * w;
    sum2 += t[at2 + r] * w;
    sum3 += t[at3 + r] * w;
  }
  let out = row * params.Y + gap + j;
  y[out] = Act(f32(y[out]) + params.scale * sum0);
  if (row + 1u < params.N) { y[out + params.Y] = Act(f32(y[out + params.Y]) + params.scale * sum1); }
  if (row + 2u < params.N) { y[out + 2u * params.Y] = Act(f32(y[out + 2u * params.Y]) + params.scale * sum2); }
  if (row + 3u < params.N) { y[out + 3u * params.Y] = Act(f32(y[out + 3u * params.Y]) + params.scale * sum3); }
}
