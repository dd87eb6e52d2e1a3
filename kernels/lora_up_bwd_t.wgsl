// Gradient of lora_up with respect to t:
//   dt[n, s * R + r] = scale * sum over the columns j of module s of dy[n, gap(s) + j] * b[r, j].
//
//   dy  [N, Y]
//   b   [R, J]  as in lora_up.wgsl
//   dt  [N, T]  written
//
// Grid      LANES threads per 4 rows and one column of dt.
// Numerics  each of the LANES threads sums every LANES-th j in ascending order, from 0; then a tree adds the threads' sums. LANES is fixed
//           per adapter.
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
override LANES: u32 = 1u; // threads that share the sums over j; a power of two that divides WG

@group(0) @binding(0) var<storage, read> dy: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> dt: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> sums: array<vec4f, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let lane = tid % LANES;
  let i = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let c = i % params.T;
  let row = i / params.T * 4u;
  let s = c / params.R;
  let r = c % params.R;
  let gap = select(select(params.gap2, params.gap1, s == 1u), params.gap0, s == 0u);
  let first = select(select(params.end1, params.end0, s == 1u), 0u, s == 0u);
  let end = select(select(params.J, params.end1, s == 1u), params.end0, s == 0u);
  let last = params.N - 1u;
  let at = vec4u(min(row, last), min(row + 1u, last), min(row + 2u, last), min(row + 3u, last)) * params.Y + gap;
  let weights = r * params.J;
  var sum = vec4f();
  var j = first + lane;
  for (; j + 3u * LANES < end; j += 4u * LANES) { // four at a time, so that their loads wait together
    let i = vec4u(j, j + LANES, j + 2u * LANES, j + 3u * LANES);
    let w = vec4f(b[weights + i.x], b[weights + i.y], b[weights + i.z], b[weights + i.w]);
    let g0 = vec4f(dy[at.x + i.x], dy[at.y + i.x], dy[at.z + i.x], dy[at.w + i.x]);
    let g1 = vec4f(dy[at.x + i.y], dy[at.y + i.y], dy[at.z + i.y], dy[at.w + i.y]);
    let g2 = vec4f(dy[at.x + i.z], dy[at.y + i.z], dy[at.z + i.z], dy[at.w + i.z]);
    let g3 = vec4f(dy[at.x + i.w], dy[at.y + i.w], dy[at.z + i.w], dy[at.w + i.w]);
    sum += g0 * w.x;
    sum += g1 * w.y;
    sum += g2 * w.z;
    sum += g3 * w.w;
  }
  for (; j < end; j += LANES) {
    sum += vec4f(dy[at.x + j], dy[at.y + j], dy[at.z + j], dy[at.w + j]) * b[weights + j];
  }
  if (LANES > 1u) {
    sums[tid] = sum;
    workgroupBarrier();
    for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
      if (lane < stride) { sums[tid] += sums[tid + stride]; }
      workgroupBarrier();
    }
    sum = sums[tid];
  }
  if (lane > 0u || row >= params.N) { return; }
  let out = row * params.T + c;
  dt[out] = params.scale * sum.x;
  if (row + 1u < params.N) { dt[out + params.T] = params.scale * sum.y; }
  if (row + 2u < params.N) { dt[out + 2u * params.T] = params.scale * sum.z; }
  if (row + 3u < params.N) { dt[out + 3u * params.T] = params.scale * sum.w; }
}
