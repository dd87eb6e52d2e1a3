// SwiGLU backward, with s = sigmoid(gate):
//   dgate = dy * up * s * (1 + gate * (1 - s)),  dup = dy * gate * s
//
//   gu   [N, 2F]
//   dy   [N, F]
//   dgu  [N, 2F]  written
//
// Grid      one thread per element of dy.
// Checked   against swigluBwd() in src/model/reference.ts by test/gpu/swiglu.test.ts.

struct Params {
  N: u32,
  F: u32,
}

override WG: u32 = 64u;

alias Act = f32; // of activations: f16 where they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> gu: array<Act>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dgu: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.N * params.F) { return; }
  let at = i / params.F * 2u * params.F + i % params.F;
  let gate = f32(gu[at]);
  let s = 1.0 / (1.0 + exp(-gate));
  dgu[at] = dy[i] * f32(gu[at + params.F]) * s * (1.0 + gate * (1.0 - s));
  dgu[at + params.F] = dy[i] * gate * s;
}
