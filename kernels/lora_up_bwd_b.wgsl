// Gradient of lora_up with respect to b, accumulated:
//   db[r, j] += scale * sum over n of t[n, s * R + r] * dy[n, gap(s) + j],   s = the module that column j belongs to.
//
//   t   [N, T]
//   dy  [N, Y]
//   db  [R, J]  read and written
//
// Grid      LANES threads per 4 rows of db and one column j; threads in a row take neighbouring columns.
// Numerics  each of the LANES threads sums every LANES-th n in ascending order, from 0; then a tree adds the threads' sums. LANES is fixed
//           per adapter.
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
override LANES: u32 = 1u; // threads that share the sums over n; a power of two that divides WG

@group(0) @binding(0) var<storage, read> t: array<f32>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> db: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> sums: array<vec4f, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let width = WG / LANES;
  let lane = tid / width;
  let i = (wg.y * grid.x + wg.x) * width + tid % width;
  let j = i % params.J;
  let r = i / params.J * 4u;
  let s = u32(j >= params.end0) + u32(j >= params.end1);
  let gap = select(select(params.gap2, params.gap1, s == 1u), params.gap0, s == 0u);
  let last = params.R - 1u;
  let c0 = s * params.R + min(r, last);
  let c1 = s * params.R + min(r + 1u, last);
  let c2 = s * params.R + min(r + 2u, last);
  let c3 = s * params.R + min(r + 3u, last);
  var sum = vec4f();
  var n = lane;
  for (; n + 3u * LANES < params.N; n += 4u * LANES) { // four at a time, so that their loads wait together
    let rows = vec4u(n, n + LANES, n + 2u * LANES, n + 3u * LANES);
    let at = rows * params.Y + gap + j;
    let g = vec4f(dy[at.x], dy[at.y], dy[at.z], dy[at.w]);
    let row = rows * params.T;
    let t0 = vec4f(t[row.x + c0], t[row.x + c1], t[row.x + c2], t[row.x + c3]);
    let t1 = vec4f(t[row.y + c0], t[row.y + c1], t[row.y + c2], t[row.y + c3]);
    let t2 = vec4f(t[row.z + c0], t[row.z + c1], t[row.z + c2], t[row.z + c3]);
    let t3 = vec4f(t[row.w + c0], t[row.w + c1], t[row.w + c2], t[row.w + c3]);
    sum += t0 * g.x;
    sum += t1 * g.y;
    sum += t2 * g.z;
    sum += t3 * g.w;
  }
  for (; n < params.N; n += LANES) {
    let row = n * params.T;
    sum += vec4f(t[row + c0], t[row + c1], t[row + c2], t[row + c3]) * dy[n * params.Y + gap + j];
  }
  if (LANES > 1u) {
    sums[tid] = sum;
    workgroupBarrier();
    for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
      if (lane < stride) { sums[tid] += sums[tid + stride * width]; }
      workgroupBarrier();
    }
    sum = sums[tid];
  }
  if (lane > 0u || r >= params.R) { return; }
  let out = r * params.J + j;
  db[out] += params.scale * sum.x;
  if (r + 1u < params.R) { db[out + params.J] += params.scale * sum.y; }
  if (r + 2u < params.R) { db[out + 2u * params.J] += params.scale * sum.z; }
  if (r + 3u < params.R) { db[out + 3u * params.J] += params.scale * sum.w; }
}
