// Gradient of lora_up with respect to b, accumulated:
//   db[r, j] += scale * sum over n of t[n, s * R + r] * dy[n, gap(s) + j],   s = the module that column j belongs to.
//
//   t   [N, T]
//   dy  [N, Y]
//   db  [R, J]  read and written
//
// Grid      one thread per 4 rows of db and one column j; threads in a row take neighbouring columns.
// Numerics  one thread sums each output over n in ascending order, from 0.
// Checked   against linearBwd() in src/extensions/verify/reference/ops.ts by test/gpu/lora_up_bwd_b.test.ts.

struct Params {
  N: u32,
  R: u32,
  T: u32,
  J: u32,
  Y: u32,
  end0: u32,
  end1: u32,
  gap0: u32,
  gap1: u32,
  gap2: u32,
  scale: f32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> t: array<f32>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> db: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  let j = i % params.J;
  let r = i / params.J * 4u;
  if (r >= params.R) { return; }
  let s = u32(j >= params.end0) + u32(j >= params.end1);
  let gap = select(select(params.gap2, params.gap1, s == 1u), params.gap0, s == 0u);
  let last = params.R - 1u;
  let c0 = s * params.R + r;
  let c1 = s * params.R + min(r + 1u, last);
  let c2 = s * params.R + min(r + 2u, last);
  let c3 = s * params.R + min(r + 3u, last);
  var sum0 = 0.0;
  var sum1 = 0.0;
  var sum2 = 0.0;
  var sum3 = 0.0;
  for (var n = 0u; n < params.N; n++) {
    let g = dy[n * params.Y + gap + j];
    let row = n * params.T;
    sum0 += t[row + c0] * g;
    sum1 += t[row + c1] * g;
    sum2 += t[row + c2] * g;
    sum3 += t[row + c3] * g;
  }
  let out = r * params.J + j;
  db[out] += params.scale * sum0;
  if (r + 1u < params.R) { db[out + params.J] += params.scale * sum1; }
  if (r + 2u < params.R) { db[out + 2u * params.J] += params.scale * sum2; }
  if (r + 3u < params.R) { db[out + 3u * params.J] += params.scale * sum3; }
}
