// RMSNorm: y = x * weight / root(mean of x * x, plus eps). One workgroup of 64 threads for each row.
const EPS = 1e-6;
const THREADS = 64u;

struct Params { C: u32 } // columns of a row

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> sums: array<f32, THREADS>; // all 64 threads read and write it

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) row: vec3u, @builtin(local_invocation_index) thread: u32) {
  let start = row.x * params.C;
  var sum = 0.0;
  for (var c = thread; c < params.C; c += THREADS) { // every 64th column
    sum += x[start + c] * x[start + c];
  }
  sums[thread] = sum;
  workgroupBarrier(); // waits until all 64 have written

  var total = 0.0;
  for (var t = 0u; t < THREADS; t++) {
    total += sums[t];
  }
  let scale = inverseSqrt(total / f32(params.C) + EPS);
  for (var c = thread; c < params.C; c += THREADS) {
    y[start + c] = x[start + c] * scale * weight[c];
  }
}
