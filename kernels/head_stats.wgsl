// Log-sum-exp and entropy of every row of logits at a temperature, z = logits / T:
//   lse = log sum_j exp(z_j),  entropy = lse - sum_j p_j z_j,  p_j = exp(z_j - lse)
//
//   logits  [R, V]
//   stats   [R, 2]   lse, entropy (nats), written
//
// Grid      one workgroup per row.
// Numerics  the maximum is subtracted before exp; the order of the sums is fixed by WG alone.
// Checked   against head() in src/model/reference.ts by test/gpu/head.test.ts.

struct Params {
  R: u32,
  V: u32,
  invT: f32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> stats: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> part: array<f32, WG>;
var<workgroup> weighted: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let row = wg.y * grid.x + wg.x;
  if (row >= params.R) { return; }
  let base = row * params.V;

  var top = -3.0e38;
  for (var j = tid; j < params.V; j += WG) {
    top = max(top, logits[base + j] * params.invT);
  }
  part[tid] = top;
  workgroupBarrier();
  for (var stride = WG / 2u; stride > 0u; stride /= 2u) {
    if (tid < stride) { part[tid] = max(part[tid], part[tid + stride]); }
    workgroupBarrier();
  }
  top = part[0];
  workgroupBarrier();

  var sum = 0.0;
  var dot = 0.0;
  for (var j = tid; j < params.V; j += WG) {
    let z = logits[base + j] * params.invT - top;
    let e = exp(z);
    sum += e;
    dot += e * z;
  }
  part[tid] = sum;
  weighted[tid] = dot;
  workgroupBarrier();
  for (var stride = WG / 2u; stride > 0u; stride /= 2u) {
    if (tid < stride) {
      part[tid] += part[tid + stride];
      weighted[tid] += weighted[tid + stride];
    }
    workgroupBarrier();
  }
  if (tid == 0u) {
    stats[row * 2u] = top + log(part[0]);
    stats[row * 2u + 1u] = log(part[0]) - weighted[0] / part[0];
  }
}
