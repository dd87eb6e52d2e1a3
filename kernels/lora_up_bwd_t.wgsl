// Gradient of lora_up with respect to t:
//   dt[n, s * R + r] = scale * sum over the columns j of module s of dy[n, gap(s) + j] * b[r, j].
//
//   dy  [N, Y]
//   b   [R, J]  as in lora_up.wgsl
//   dt  [N, T]  written
//
// Grid      one thread per 4 rows and one column of dt.
// Numerics  one thread sums each output over j in ascending order, from 0.
// Checked   against linearBwd() in src/extensions/verify/reference/ops.ts by test/gpu/lora_up_bwd_t.test.ts.

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

@group(0) @binding(0) var<storage, read> dy: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> dt: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  let c = i % params.T;
  let row = i / params.T * 4u;
  if (row >= params.N) { return; }
  let s = c / params.R;
  let r = c % params.R;
  let gap = select(select(params.gap2, params.gap1, s == 1u), params.gap0, s == 0u);
  let first = select(select(params.end1, params.end0, s == 1u), 0u, s == 0u);
  let end = select(select(params.J, params.end1, s == 1u), params.end0, s == 0u);
  let last = params.N - 1u;
  let at0 = row * params.Y + gap;
  let at1 = min(row + 1u, last) * params.Y + gap;
  let at2 = min(row + 2u, last) * params.Y + gap;
  let at3 = min(row + 3u, last) * params.Y + gap;
  var sum0 = 0.0;
  var sum1 = 0.0;
  var sum2 = 0.0;
  var sum3 = 0.0;
  for (var j = first; j < end; j++) {
    let w = b[r * params.J + j];
    sum0 += dy[at0 + j] * w;
    sum1 += dy[at1 + j] * w;
    sum2 += dy[at2 + j] * w;
    sum3 += dy[at3 + j] * w;
  }
  let out = row * params.T + c;
  dt[out] = params.scale * sum0;
  if (row + 1u < params.N) { dt[out + params.T] = params.scale * sum1; }
  if (row + 2u < params.N) { dt[out + 2u * params.T] = params.scale * sum2; }
  if (row + 3u < params.N) { dt[out + 3u * params.T] = params.scale * sum3; }
}
