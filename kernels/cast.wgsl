// Copies y[atY + i] = x[atX + i] for i < n, converting between float types: to halves and back.
//
//   x  [at least atX + n]
//   y  [at least atY + n]  written
//
// Grid      one thread per element.
// Numerics  to f16: rounds to nearest (2^-11 relative, 2^-25 absolute below 2^-14), beyond 65504 to infinity. From f16: exact.
//           A device can truncate instead, or flush values below 2^-14 to 0.
// Checked   against rounded() in test/gpu/halfBuffers.ts by test/gpu/cast.test.ts.

struct Params {
  n: u32,
  atX: u32,
  atY: u32,
}

override WG: u32 = 64u;

alias X = f32; // f16 if the buffer has halves (src/gpu/halves.ts)
alias Y = f32;

@group(0) @binding(0) var<storage, read> x: array<X>;
@group(0) @binding(1) var<storage, read_write> y: array<Y>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.n) { return; }
  y[params.atY + i] = Y(f32(x[params.atX + i]));
}
