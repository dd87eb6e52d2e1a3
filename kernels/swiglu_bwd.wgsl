// SwiGLU backward, with s = sigmoid(gate):
//   dgate = dy * up * s * (1 + gate * (1 - s)),  dup = dy * gate * s
//
//   gu   [N, 2F]
//   dy   [N, F]
//   dgu  [N, 2F]  written
//
// Grid      one thread per (4 rows, column), as swiglu.wgsl.
// Checked   against swigluBwd() in src/extensions/verify/reference/ops.ts by test/gpu/swiglu_bwd.test.ts.

struct Params {
  N: u32,
  F: u32,
}

override WG: u32 = 64u;

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> gu: array<Act>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dgu: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let t = (wg.y * grid.x + wg.x) * WG + tid;
  let F = params.F;
  let first = t / F * 4u;
  let c = t % F;
  if (first >= params.N) { return; }
  let row = min(first + vec4u(0u, 1u, 2u, 3u), vec4u(params.N - 1u)); // past the end: the last row again
  let at = row * 2u * F + c;
  let dyAt = row * F + c;
  let gate = vec4f(vec4<Act>(gu[at.x], gu[at.y], gu[at.z], gu[at.w]));
  let up = vec4f(vec4<Act>(gu[at.x + F], gu[at.y + F], gu[at.z + F], gu[at.w + F]));
  let g = vec4f(dy[dyAt.x], dy[dyAt.y], dy[dyAt.z], dy[dyAt.w]);
  let s = 1.0 / (1.0 + exp(-gate));
  let dgate = g * up * s * (1.0 + gate * (1.0 - s));
  let dup = g * gate * s;
  dgu[at.x] = dgate.x;
  dgu[at.y] = dgate.y;
  dgu[at.z] = dgate.z;
  dgu[at.w] = dgate.w;
  dgu[at.x + F] = dup.x;
  dgu[at.y + F] = dup.y;
  dgu[at.z + F] = dup.z;
  dgu[at.w + F] = dup.w;
}
