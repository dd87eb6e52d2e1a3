// First half of the global gradient norm: partial[slot + t] = sum of g^2 over the elements t, t + THREADS, ...
//
//   g        [n]
//   partial  [slots]  written at slot .. slot + THREADS - 1
//
// Grid      THREADS threads in total for every n, so the order of the sum never changes.
// Checked   against a float64 sum in test/gpu/grad_norm.test.ts.

struct Params {
  n: u32,
  slot: u32,
}

const THREADS: u32 = 256u; // also in src/gpu/ops/adamw.ts

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  var sum = 0.0;
  for (var i = id.x; i < params.n; i += THREADS) {
    sum += g[i] * g[i];
  }
  partial[params.slot + id.x] = sum;
}
