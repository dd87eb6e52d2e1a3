// Inverted dropout with a mask computed from a key alone, so that backward recomputes it instead of storing it:
//   y[i] = keep(i) ? x[i] / (1 - p) : 0,   ADD = 1: y[i] += that.
//
//   x  [n]
//   y  [n]  written; also read if ADD = 1
//
// keep(i)   pcg3d(i, key0, key1).x >= p * 2^32: one number per element and key (Jarzynski and Olano 2020, JCGT 9(3)).
// Grid      one thread per element.
// Numerics  one product; with ADD also one sum.
// Checked   against the same hash in test/gpu/dropout.test.ts, which also checks the share of zeros.

struct Params {
  n: u32,
  key0: u32,
  key1: u32,
  threshold: u32, // p * 2^32
  scale: f32,     // 1 / (1 - p)
}

override WG: u32 = 64u;
override ADD: u32 = 0u;

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> x: array<Act>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

fn pcg3d(key: vec3u) -> vec3u {
  var v = key * 1664525u + 1013904223u;
  v.x += v.y * v.z;
  v.y += v.z * v.x;
  v.z += v.x * v.y;
  v ^= v >> vec3u(16u);
  v.x += v.y * v.z;
  v.y += v.z * v.x;
  v.z += v.x * v.y;
  return v;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.n) { return; }
  let kept = pcg3d(vec3u(i, params.key0, params.key1)).x >= params.threshold;
  let value = select(0.0, f32(x[i]) * params.scale, kept);
  if (ADD == 1u) { y[i] += value; } else { y[i] = value; }
}
