// Multiply-adds on registers alone: what the adapter can do at most, 2 * 192 operations a thread and round.
//
//   y  [2 + threads]   in: y[0], y[1] the factor and the addend (unknown to the compiler); out: a sum a thread
//
// Grid      one thread an element. Twelve independent accumulators: fewer wait for each other, more spill on SwiftShader. So
//           do twelve where Dawn counts a loop's turns, as it does unless it sees the end: hence a `let` for the bound.

struct Params {
  rounds: u32,
}

alias Real = f32; // f16 to measure that (peaks.ts)
alias Real4 = vec4<Real>;

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let a = Real(y[0]);
  let b = Real(y[1]);
  let start = Real(id.x % 64u);
  var r0 = Real4(start, start + 1.0, start + 2.0, start + 3.0);
  var r1 = r0 + 4.0;
  var r2 = r0 + 8.0;
  let limit = params.rounds;
  for (var i = 0u; i < limit; i++) {
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
    r0 = r0 * a + b; r1 = r1 * a + b; r2 = r2 * a + b;
  }
  let sum = r0 + r1 + r2;
  y[2u + id.x] = f32(sum.x + sum.y + sum.z + sum.w);
}
