// Log-sum-exp and entropy of every row of logits at a temperature, z = logits / T:
//   lse = log sum_j exp(z_j),  entropy = lse - sum_j p_j z_j,  p_j = exp(z_j - lse)
//
//   logits  [R, V]
//   stats   [R, 2]   lse, entropy (nats), written
//
// Grid      LANES threads per row, WG / LANES rows per workgroup.
// Numerics  the maximum is subtracted before exp. A thread sums blocks of BLOCK terms, then adds the blocks: one running sum over
//           49,152 words loses the small terms. The order of the sums is fixed by LANES alone.
// Checked   against head() in src/extensions/verify/reference/ops.ts by test/gpu/head_stats.test.ts.

struct Params {
  R: u32,
  V: u32,
  invT: f32,
}

override WG: u32 = 64u; // threads in a workgroup
override LANES: u32 = 64u; // threads that share a row; a power of two that divides WG

const BLOCK = 512u; // as in sample.wgsl and head_cdf.wgsl

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> stats: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> part: array<f32, WG>;
var<workgroup> weighted: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let row = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let lane = tid % LANES;
  let base = row * params.V;
  let V = select(0u, params.V, row < params.R); // no early return: barriers need every thread

  var top = -3.0e38;
  for (var j = lane; j < V; j += LANES) {
    top = max(top, logits[base + j] * params.invT);
  }
  if (LANES > 1u) {
    part[tid] = top;
    workgroupBarrier();
    for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
      if (lane < stride) { part[tid] = max(part[tid], part[tid + stride]); }
      workgroupBarrier();
    }
    top = part[tid - lane];
    workgroupBarrier();
  }

  var sum = 0.0;
  var dot = 0.0;
  for (var first = lane; first < V; first += BLOCK * LANES) {
    var blockSum = 0.0;
    var blockDot = 0.0;
    for (var j = first; j < min(V, first + BLOCK * LANES); j += LANES) {
      let z = logits[base + j] * params.invT - top;
      let e = exp(z);
      blockSum += e;
      blockDot += e * z;
    }
    sum += blockSum;
    dot += blockDot;
  }
  if (LANES > 1u) {
    part[tid] = sum;
    weighted[tid] = dot;
    workgroupBarrier();
    for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
      if (lane < stride) {
        part[tid] += part[tid + stride];
        weighted[tid] += weighted[tid + stride];
      }
      workgroupBarrier();
    }
    sum = part[tid - lane];
    dot = weighted[tid - lane];
  }
  if (lane == 0u && row < params.R) {
    stats[row * 2u] = top + log(sum);
    stats[row * 2u + 1u] = log(sum) - dot / sum;
  }
}
