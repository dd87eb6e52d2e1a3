// First half of the global gradient norm: partial[slot + s] = sum of g^2 over the elements of slot s: runs of LANES elements, every SLOTS-th.
//
//   g        [n]
//   partial  [slots]  written at slot .. slot + SLOTS - 1
//
// Grid      SLOTS * LANES threads in total for every n, so the order of the sum never changes on one adapter.
// Checked   against a float64 sum in test/gpu/grad_norm.test.ts.

struct Params {
  n: u32,
  slot: u32,
}

const SLOTS: u32 = 256u; // also in src/gpu/ops/adamw.ts
override WG: u32 = 64u;
override LANES: u32 = 1u; // threads of a slot; a power of two that divides WG

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) tid: u32) {
  var sum = 0.0;
  for (var i = id.x; i < params.n; i += SLOTS * LANES) {
    sum += g[i] * g[i];
  }
  let lane = tid % LANES;
  if (LANES > 1u) {
    sums[tid] = sum;
    workgroupBarrier();
    for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
      if (lane < stride) { sums[tid] += sums[tid + stride]; }
      workgroupBarrier();
    }
    sum = sums[tid - lane];
  }
  if (lane == 0u) { partial[params.slot + id.x / LANES] = sum; }
}
