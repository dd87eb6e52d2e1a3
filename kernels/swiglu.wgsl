// SwiGLU: y = silu(gate) * up, silu(z) = z / (1 + exp(-z)).
//
//   gu  [N, 2F]  gate in the first F columns, up in the rest
//   y   [N, F]   written
//
// Grid      one thread per (4 rows, column): on a software adapter starting a thread costs as much as computing one element.
// Paper     Shazeer 2020, arXiv:2002.05202.
// Checked   against swiglu() in src/extensions/verify/reference/ops.ts by test/gpu/swiglu.test.ts.

struct Params {
  N: u32,
  F: u32,
}

override WG: u32 = 64u;

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> gu: array<Act>;
@group(0) @binding(1) var<storage, read_write> y: array<Act>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let t = (wg.y * grid.x + wg.x) * WG + tid;
  let F = params.F;
  let first = t / F * 4u;
  let c = t % F;
  if (first >= params.N) { return; }
  let row = min(first + vec4u(0u, 1u, 2u, 3u), vec4u(params.N - 1u)); // past the end: the last row again
  let at = row * 2u * F + c;
  let gate = vec4f(vec4<Act>(gu[at.x], gu[at.y], gu[at.z], gu[at.w]));
  let up = vec4f(vec4<Act>(gu[at.x + F], gu[at.y + F], gu[at.z + F], gu[at.w + F]));
  let value = vec4<Act>(gate / (1.0 + exp(-gate)) * up);
  let to = row * F + c;
  y[to.x] = value.x;
  y[to.y] = value.y;
  y[to.z] = value.z;
  y[to.w] = value.w;
}
