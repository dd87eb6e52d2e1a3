// SwiGLU: y = silu(gate) * up, silu(z) = z / (1 + exp(-z)).
//
//   gu  [N, 2F]  gate in the first F columns, up in the rest
//   y   [N, F]   written
//
// Grid      one thread per element of y.
// Paper     Shazeer 2020, arXiv:2002.05202.
// Checked   against swiglu() in src/model/reference.ts by test/gpu/swiglu.test.ts.

struct Params {
  N: u32,
  F: u32,
}

override WG: u32 = 64u;

alias Act = f32; // of activations: f16 where they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> gu: array<Act>;
@group(0) @binding(1) var<storage, read_write> y: array<Act>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.N * params.F) { return; }
  let at = i / params.F * 2u * params.F + i % params.F;
  let gate = f32(gu[at]);
  y[i] = Act(gate / (1.0 + exp(-gate)) * f32(gu[at + params.F]));
}
