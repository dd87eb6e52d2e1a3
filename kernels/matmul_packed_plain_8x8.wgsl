// Product with a matrix in fewer bits: y[m, n] = sum over k of a[m, k] * w(k, n), then + add, then + y[m, n] if asked.
//
//   a     [M, K]
//   b     [blocks of words] of pack.wgsl; a block's values are neighbours in the matrix as it lies:
//         NT = false   w is [K, N]: runs of eight columns; run = N, block = 8 N, col = 1
//         NT = true    w is [N, K], transposed: runs of eight k; run = K, block = 8, col = K
//   add   added = 1: bias [N];  added = 2: [M, N], the residual stream;  added = 0: any buffer
//   y     [M, N]; read first when accumulate = 1
//
// Grid      a row of LANES threads computes 8 x (8 * LANES) outputs, 8 x 8 a thread; workgroups in a row, folded over
//           x and y past 65535. N and K are multiples of 8, so that no run of eight leaves its row or its block.
// Numerics  weights become the float32 that unpack.wgsl makes of them, and each output is summed over k in ascending
//           order, from 0: the same bits as unpack.wgsl and a float32 product after it.
//           Printed by scripts/gen-matmul.mjs: edit scripts/lib/packedTile.mjs.
// Checked   against both by test/gpu/matmul_packed_*.test.ts.

struct Params {
  M: u32,     // rows of y
  N: u32,     // columns of y
  K: u32,     // summed over
  run: u32,   // values from one run of eight to the next
  block: u32, // values from one eight k to the next
  col: u32,   // values from one column of y to the next
  added: u32,
  accumulate: u32,
}

override WG: u32 = 64u; // threads in a workgroup; a multiple of the LANES
override FORMAT: u32 = 0u; // as in pack.wgsl
override NT: bool = false;
override LANES: u32 = 4u; // neighbouring threads that read neighbouring columns

alias A = f32; // f16 where its buffer holds halves (src/gpu/halves.ts)
alias Y = f32;

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> add: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<Y>;
@group(0) @binding(4) var<uniform> params: Params;

struct Eight {
  lo: vec4f,
  hi: vec4f,
}

fn bytes(word: u32) -> vec4f {
  return vec4f((vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(255u)) - 128.0;
}

fn nibbles(word: u32) -> vec4f {
  return vec4f((vec4u(word) >> vec4u(0u, 4u, 8u, 12u)) & vec4u(15u)) - 8.0;
}

// Values i .. i + 7; i is a multiple of 8.
fn eight(i: u32) -> Eight {
  if (FORMAT == 0u) {
    let at = i / 2u;
    let lo = vec4f(unpack2x16float(b[at]), unpack2x16float(b[at + 1u]));
    return Eight(lo, vec4f(unpack2x16float(b[at + 2u]), unpack2x16float(b[at + 3u])));
  }
  if (FORMAT == 1u) {
    let at = i / 32u * 9u;
    let scale = bitcast<f32>(b[at]);
    let word = at + 1u + i % 32u / 4u;
    return Eight(bytes(b[word]) * scale, bytes(b[word + 1u]) * scale);
  }
  let at = i / 32u * 5u;
  let scale = bitcast<f32>(b[at]);
  let word = b[at + 1u + i % 32u / 8u];
  return Eight(nibbles(word) * scale, nibbles(word >> 16u) * scale);
}

fn put(row: u32, col: u32, sum: f32) {
  var value = sum;
  if (params.added == 1u) { value += add[col]; }
  if (params.added == 2u) { value += add[row * params.N + col]; }
  if (params.accumulate == 1u) { value += f32(y[row * params.N + col]); }
  y[row * params.N + col] = Y(value);
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(local_invocation_index) tid: u32,
) {
  let lane = tid % LANES;
  let tile = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let across = (params.N + 8u * LANES - 1u) / (8u * LANES); // tiles side by side
  let row0 = tile / across * 8u;
  let col0 = (tile % across * LANES + lane) * 8u;
  if (row0 >= params.M) { return; }

  var ia0 = min(row0 + 0u, params.M - 1u) * params.K;
  var ia1 = min(row0 + 1u, params.M - 1u) * params.K;
  var ia2 = min(row0 + 2u, params.M - 1u) * params.K;
  var ia3 = min(row0 + 3u, params.M - 1u) * params.K;
  var ia4 = min(row0 + 4u, params.M - 1u) * params.K;
  var ia5 = min(row0 + 5u, params.M - 1u) * params.K;
  var ia6 = min(row0 + 6u, params.M - 1u) * params.K;
  var ia7 = min(row0 + 7u, params.M - 1u) * params.K;
  var ib = min(col0, params.N - 8u) * params.col;
  var s0_0 = 0.0; var s0_1 = 0.0; var s0_2 = 0.0; var s0_3 = 0.0; var s0_4 = 0.0; var s0_5 = 0.0; var s0_6 = 0.0; var s0_7 = 0.0;
  var s1_0 = 0.0; var s1_1 = 0.0; var s1_2 = 0.0; var s1_3 = 0.0; var s1_4 = 0.0; var s1_5 = 0.0; var s1_6 = 0.0; var s1_7 = 0.0;
  var s2_0 = 0.0; var s2_1 = 0.0; var s2_2 = 0.0; var s2_3 = 0.0; var s2_4 = 0.0; var s2_5 = 0.0; var s2_6 = 0.0; var s2_7 = 0.0;
  var s3_0 = 0.0; var s3_1 = 0.0; var s3_2 = 0.0; var s3_3 = 0.0; var s3_4 = 0.0; var s3_5 = 0.0; var s3_6 = 0.0; var s3_7 = 0.0;
  var s4_0 = 0.0; var s4_1 = 0.0; var s4_2 = 0.0; var s4_3 = 0.0; var s4_4 = 0.0; var s4_5 = 0.0; var s4_6 = 0.0; var s4_7 = 0.0;
  var s5_0 = 0.0; var s5_1 = 0.0; var s5_2 = 0.0; var s5_3 = 0.0; var s5_4 = 0.0; var s5_5 = 0.0; var s5_6 = 0.0; var s5_7 = 0.0;
  var s6_0 = 0.0; var s6_1 = 0.0; var s6_2 = 0.0; var s6_3 = 0.0; var s6_4 = 0.0; var s6_5 = 0.0; var s6_6 = 0.0; var s6_7 = 0.0;
  var s7_0 = 0.0; var s7_1 = 0.0; var s7_2 = 0.0; var s7_3 = 0.0; var s7_4 = 0.0; var s7_5 = 0.0; var s7_6 = 0.0; var s7_7 = 0.0;

  for (var k = 0u; k < params.K; k += 8u) {
    let g0 = eight(ib);
    let g1 = eight(ib + 1u * params.run);
    let g2 = eight(ib + 2u * params.run);
    let g3 = eight(ib + 3u * params.run);
    let g4 = eight(ib + 4u * params.run);
    let g5 = eight(ib + 5u * params.run);
    let g6 = eight(ib + 6u * params.run);
    let g7 = eight(ib + 7u * params.run);
    let a0_0 = f32(a[ia0]);
    let a0_1 = f32(a[ia0 + 1u]);
    let a0_2 = f32(a[ia0 + 2u]);
    let a0_3 = f32(a[ia0 + 3u]);
    let a0_4 = f32(a[ia0 + 4u]);
    let a0_5 = f32(a[ia0 + 5u]);
    let a0_6 = f32(a[ia0 + 6u]);
    let a0_7 = f32(a[ia0 + 7u]);
    let a1_0 = f32(a[ia1]);
    let a1_1 = f32(a[ia1 + 1u]);
    let a1_2 = f32(a[ia1 + 2u]);
    let a1_3 = f32(a[ia1 + 3u]);
    let a1_4 = f32(a[ia1 + 4u]);
    let a1_5 = f32(a[ia1 + 5u]);
    let a1_6 = f32(a[ia1 + 6u]);
    let a1_7 = f32(a[ia1 + 7u]);
    let a2_0 = f32(a[ia2]);
    let a2_1 = f32(a[ia2 + 1u]);
    let a2_2 = f32(a[ia2 + 2u]);
    let a2_3 = f32(a[ia2 + 3u]);
    let a2_4 = f32(a[ia2 + 4u]);
    let a2_5 = f32(a[ia2 + 5u]);
    let a2_6 = f32(a[ia2 + 6u]);
    let a2_7 = f32(a[ia2 + 7u]);
    let a3_0 = f32(a[ia3]);
    let a3_1 = f32(a[ia3 + 1u]);
    let a3_2 = f32(a[ia3 + 2u]);
    let a3_3 = f32(a[ia3 + 3u]);
    let a3_4 = f32(a[ia3 + 4u]);
    let a3_5 = f32(a[ia3 + 5u]);
    let a3_6 = f32(a[ia3 + 6u]);
    let a3_7 = f32(a[ia3 + 7u]);
    let a4_0 = f32(a[ia4]);
    let a4_1 = f32(a[ia4 + 1u]);
    let a4_2 = f32(a[ia4 + 2u]);
    let a4_3 = f32(a[ia4 + 3u]);
    let a4_4 = f32(a[ia4 + 4u]);
    let a4_5 = f32(a[ia4 + 5u]);
    let a4_6 = f32(a[ia4 + 6u]);
    let a4_7 = f32(a[ia4 + 7u]);
    let a5_0 = f32(a[ia5]);
    let a5_1 = f32(a[ia5 + 1u]);
    let a5_2 = f32(a[ia5 + 2u]);
    let a5_3 = f32(a[ia5 + 3u]);
    let a5_4 = f32(a[ia5 + 4u]);
    let a5_5 = f32(a[ia5 + 5u]);
    let a5_6 = f32(a[ia5 + 6u]);
    let a5_7 = f32(a[ia5 + 7u]);
    let a6_0 = f32(a[ia6]);
    let a6_1 = f32(a[ia6 + 1u]);
    let a6_2 = f32(a[ia6 + 2u]);
    let a6_3 = f32(a[ia6 + 3u]);
    let a6_4 = f32(a[ia6 + 4u]);
    let a6_5 = f32(a[ia6 + 5u]);
    let a6_6 = f32(a[ia6 + 6u]);
    let a6_7 = f32(a[ia6 + 7u]);
    let a7_0 = f32(a[ia7]);
    let a7_1 = f32(a[ia7 + 1u]);
    let a7_2 = f32(a[ia7 + 2u]);
    let a7_3 = f32(a[ia7 + 3u]);
    let a7_4 = f32(a[ia7 + 4u]);
    let a7_5 = f32(a[ia7 + 5u]);
    let a7_6 = f32(a[ia7 + 6u]);
    let a7_7 = f32(a[ia7 + 7u]);
    let b0_0 = select(g0.lo.x, g0.lo.x, NT); let b0_1 = select(g1.lo.x, g0.lo.y, NT); let b0_2 = select(g2.lo.x, g0.lo.z, NT); let b0_3 = select(g3.lo.x, g0.lo.w, NT); let b0_4 = select(g4.lo.x, g0.hi.x, NT); let b0_5 = select(g5.lo.x, g0.hi.y, NT); let b0_6 = select(g6.lo.x, g0.hi.z, NT); let b0_7 = select(g7.lo.x, g0.hi.w, NT);
    let b1_0 = select(g0.lo.y, g1.lo.x, NT); let b1_1 = select(g1.lo.y, g1.lo.y, NT); let b1_2 = select(g2.lo.y, g1.lo.z, NT); let b1_3 = select(g3.lo.y, g1.lo.w, NT); let b1_4 = select(g4.lo.y, g1.hi.x, NT); let b1_5 = select(g5.lo.y, g1.hi.y, NT); let b1_6 = select(g6.lo.y, g1.hi.z, NT); let b1_7 = select(g7.lo.y, g1.hi.w, NT);
    let b2_0 = select(g0.lo.z, g2.lo.x, NT); let b2_1 = select(g1.lo.z, g2.lo.y, NT); let b2_2 = select(g2.lo.z, g2.lo.z, NT); let b2_3 = select(g3.lo.z, g2.lo.w, NT); let b2_4 = select(g4.lo.z, g2.hi.x, NT); let b2_5 = select(g5.lo.z, g2.hi.y, NT); let b2_6 = select(g6.lo.z, g2.hi.z, NT); let b2_7 = select(g7.lo.z, g2.hi.w, NT);
    let b3_0 = select(g0.lo.w, g3.lo.x, NT); let b3_1 = select(g1.lo.w, g3.lo.y, NT); let b3_2 = select(g2.lo.w, g3.lo.z, NT); let b3_3 = select(g3.lo.w, g3.lo.w, NT); let b3_4 = select(g4.lo.w, g3.hi.x, NT); let b3_5 = select(g5.lo.w, g3.hi.y, NT); let b3_6 = select(g6.lo.w, g3.hi.z, NT); let b3_7 = select(g7.lo.w, g3.hi.w, NT);
    let b4_0 = select(g0.hi.x, g4.lo.x, NT); let b4_1 = select(g1.hi.x, g4.lo.y, NT); let b4_2 = select(g2.hi.x, g4.lo.z, NT); let b4_3 = select(g3.hi.x, g4.lo.w, NT); let b4_4 = select(g4.hi.x, g4.hi.x, NT); let b4_5 = select(g5.hi.x, g4.hi.y, NT); let b4_6 = select(g6.hi.x, g4.hi.z, NT); let b4_7 = select(g7.hi.x, g4.hi.w, NT);
    let b5_0 = select(g0.hi.y, g5.lo.x, NT); let b5_1 = select(g1.hi.y, g5.lo.y, NT); let b5_2 = select(g2.hi.y, g5.lo.z, NT); let b5_3 = select(g3.hi.y, g5.lo.w, NT); let b5_4 = select(g4.hi.y, g5.hi.x, NT); let b5_5 = select(g5.hi.y, g5.hi.y, NT); let b5_6 = select(g6.hi.y, g5.hi.z, NT); let b5_7 = select(g7.hi.y, g5.hi.w, NT);
    let b6_0 = select(g0.hi.z, g6.lo.x, NT); let b6_1 = select(g1.hi.z, g6.lo.y, NT); let b6_2 = select(g2.hi.z, g6.lo.z, NT); let b6_3 = select(g3.hi.z, g6.lo.w, NT); let b6_4 = select(g4.hi.z, g6.hi.x, NT); let b6_5 = select(g5.hi.z, g6.hi.y, NT); let b6_6 = select(g6.hi.z, g6.hi.z, NT); let b6_7 = select(g7.hi.z, g6.hi.w, NT);
    let b7_0 = select(g0.hi.w, g7.lo.x, NT); let b7_1 = select(g1.hi.w, g7.lo.y, NT); let b7_2 = select(g2.hi.w, g7.lo.z, NT); let b7_3 = select(g3.hi.w, g7.lo.w, NT); let b7_4 = select(g4.hi.w, g7.hi.x, NT); let b7_5 = select(g5.hi.w, g7.hi.y, NT); let b7_6 = select(g6.hi.w, g7.hi.z, NT); let b7_7 = select(g7.hi.w, g7.hi.w, NT);
    let x0_0 = a0_0; let x0_1 = a0_1; let x0_2 = a0_2; let x0_3 = a0_3; let x0_4 = a0_4; let x0_5 = a0_5; let x0_6 = a0_6; let x0_7 = a0_7;
    s0_0 = s0_0 + x0_0 * b0_0 + x0_1 * b0_1 + x0_2 * b0_2 + x0_3 * b0_3 + x0_4 * b0_4 + x0_5 * b0_5 + x0_6 * b0_6 + x0_7 * b0_7;
    s0_1 = s0_1 + x0_0 * b1_0 + x0_1 * b1_1 + x0_2 * b1_2 + x0_3 * b1_3 + x0_4 * b1_4 + x0_5 * b1_5 + x0_6 * b1_6 + x0_7 * b1_7;
    s0_2 = s0_2 + x0_0 * b2_0 + x0_1 * b2_1 + x0_2 * b2_2 + x0_3 * b2_3 + x0_4 * b2_4 + x0_5 * b2_5 + x0_6 * b2_6 + x0_7 * b2_7;
    s0_3 = s0_3 + x0_0 * b3_0 + x0_1 * b3_1 + x0_2 * b3_2 + x0_3 * b3_3 + x0_4 * b3_4 + x0_5 * b3_5 + x0_6 * b3_6 + x0_7 * b3_7;
    s0_4 = s0_4 + x0_0 * b4_0 + x0_1 * b4_1 + x0_2 * b4_2 + x0_3 * b4_3 + x0_4 * b4_4 + x0_5 * b4_5 + x0_6 * b4_6 + x0_7 * b4_7;
    s0_5 = s0_5 + x0_0 * b5_0 + x0_1 * b5_1 + x0_2 * b5_2 + x0_3 * b5_3 + x0_4 * b5_4 + x0_5 * b5_5 + x0_6 * b5_6 + x0_7 * b5_7;
    s0_6 = s0_6 + x0_0 * b6_0 + x0_1 * b6_1 + x0_2 * b6_2 + x0_3 * b6_3 + x0_4 * b6_4 + x0_5 * b6_5 + x0_6 * b6_6 + x0_7 * b6_7;
    s0_7 = s0_7 + x0_0 * b7_0 + x0_1 * b7_1 + x0_2 * b7_2 + x0_3 * b7_3 + x0_4 * b7_4 + x0_5 * b7_5 + x0_6 * b7_6 + x0_7 * b7_7;
    let x1_0 = a1_0; let x1_1 = a1_1; let x1_2 = a1_2; let x1_3 = a1_3; let x1_4 = a1_4; let x1_5 = a1_5; let x1_6 = a1_6; let x1_7 = a1_7;
    s1_0 = s1_0 + x1_0 * b0_0 + x1_1 * b0_1 + x1_2 * b0_2 + x1_3 * b0_3 + x1_4 * b0_4 + x1_5 * b0_5 + x1_6 * b0_6 + x1_7 * b0_7;
    s1_1 = s1_1 + x1_0 * b1_0 + x1_1 * b1_1 + x1_2 * b1_2 + x1_3 * b1_3 + x1_4 * b1_4 + x1_5 * b1_5 + x1_6 * b1_6 + x1_7 * b1_7;
    s1_2 = s1_2 + x1_0 * b2_0 + x1_1 * b2_1 + x1_2 * b2_2 + x1_3 * b2_3 + x1_4 * b2_4 + x1_5 * b2_5 + x1_6 * b2_6 + x1_7 * b2_7;
    s1_3 = s1_3 + x1_0 * b3_0 + x1_1 * b3_1 + x1_2 * b3_2 + x1_3 * b3_3 + x1_4 * b3_4 + x1_5 * b3_5 + x1_6 * b3_6 + x1_7 * b3_7;
    s1_4 = s1_4 + x1_0 * b4_0 + x1_1 * b4_1 + x1_2 * b4_2 + x1_3 * b4_3 + x1_4 * b4_4 + x1_5 * b4_5 + x1_6 * b4_6 + x1_7 * b4_7;
    s1_5 = s1_5 + x1_0 * b5_0 + x1_1 * b5_1 + x1_2 * b5_2 + x1_3 * b5_3 + x1_4 * b5_4 + x1_5 * b5_5 + x1_6 * b5_6 + x1_7 * b5_7;
    s1_6 = s1_6 + x1_0 * b6_0 + x1_1 * b6_1 + x1_2 * b6_2 + x1_3 * b6_3 + x1_4 * b6_4 + x1_5 * b6_5 + x1_6 * b6_6 + x1_7 * b6_7;
    s1_7 = s1_7 + x1_0 * b7_0 + x1_1 * b7_1 + x1_2 * b7_2 + x1_3 * b7_3 + x1_4 * b7_4 + x1_5 * b7_5 + x1_6 * b7_6 + x1_7 * b7_7;
    let x2_0 = a2_0; let x2_1 = a2_1; let x2_2 = a2_2; let x2_3 = a2_3; let x2_4 = a2_4; let x2_5 = a2_5; let x2_6 = a2_6; let x2_7 = a2_7;
    s2_0 = s2_0 + x2_0 * b0_0 + x2_1 * b0_1 + x2_2 * b0_2 + x2_3 * b0_3 + x2_4 * b0_4 + x2_5 * b0_5 + x2_6 * b0_6 + x2_7 * b0_7;
    s2_1 = s2_1 + x2_0 * b1_0 + x2_1 * b1_1 + x2_2 * b1_2 + x2_3 * b1_3 + x2_4 * b1_4 + x2_5 * b1_5 + x2_6 * b1_6 + x2_7 * b1_7;
    s2_2 = s2_2 + x2_0 * b2_0 + x2_1 * b2_1 + x2_2 * b2_2 + x2_3 * b2_3 + x2_4 * b2_4 + x2_5 * b2_5 + x2_6 * b2_6 + x2_7 * b2_7;
    s2_3 = s2_3 + x2_0 * b3_0 + x2_1 * b3_1 + x2_2 * b3_2 + x2_3 * b3_3 + x2_4 * b3_4 + x2_5 * b3_5 + x2_6 * b3_6 + x2_7 * b3_7;
    s2_4 = s2_4 + x2_0 * b4_0 + x2_1 * b4_1 + x2_2 * b4_2 + x2_3 * b4_3 + x2_4 * b4_4 + x2_5 * b4_5 + x2_6 * b4_6 + x2_7 * b4_7;
    s2_5 = s2_5 + x2_0 * b5_0 + x2_1 * b5_1 + x2_2 * b5_2 + x2_3 * b5_3 + x2_4 * b5_4 + x2_5 * b5_5 + x2_6 * b5_6 + x2_7 * b5_7;
    s2_6 = s2_6 + x2_0 * b6_0 + x2_1 * b6_1 + x2_2 * b6_2 + x2_3 * b6_3 + x2_4 * b6_4 + x2_5 * b6_5 + x2_6 * b6_6 + x2_7 * b6_7;
    s2_7 = s2_7 + x2_0 * b7_0 + x2_1 * b7_1 + x2_2 * b7_2 + x2_3 * b7_3 + x2_4 * b7_4 + x2_5 * b7_5 + x2_6 * b7_6 + x2_7 * b7_7;
    let x3_0 = a3_0; let x3_1 = a3_1; let x3_2 = a3_2; let x3_3 = a3_3; let x3_4 = a3_4; let x3_5 = a3_5; let x3_6 = a3_6; let x3_7 = a3_7;
    s3_0 = s3_0 + x3_0 * b0_0 + x3_1 * b0_1 + x3_2 * b0_2 + x3_3 * b0_3 + x3_4 * b0_4 + x3_5 * b0_5 + x3_6 * b0_6 + x3_7 * b0_7;
    s3_1 = s3_1 + x3_0 * b1_0 + x3_1 * b1_1 + x3_2 * b1_2 + x3_3 * b1_3 + x3_4 * b1_4 + x3_5 * b1_5 + x3_6 * b1_6 + x3_7 * b1_7;
    s3_2 = s3_2 + x3_0 * b2_0 + x3_1 * b2_1 + x3_2 * b2_2 + x3_3 * b2_3 + x3_4 * b2_4 + x3_5 * b2_5 + x3_6 * b2_6 + x3_7 * b2_7;
    s3_3 = s3_3 + x3_0 * b3_0 + x3_1 * b3_1 + x3_2 * b3_2 + x3_3 * b3_3 + x3_4 * b3_4 + x3_5 * b3_5 + x3_6 * b3_6 + x3_7 * b3_7;
    s3_4 = s3_4 + x3_0 * b4_0 + x3_1 * b4_1 + x3_2 * b4_2 + x3_3 * b4_3 + x3_4 * b4_4 + x3_5 * b4_5 + x3_6 * b4_6 + x3_7 * b4_7;
    s3_5 = s3_5 + x3_0 * b5_0 + x3_1 * b5_1 + x3_2 * b5_2 + x3_3 * b5_3 + x3_4 * b5_4 + x3_5 * b5_5 + x3_6 * b5_6 + x3_7 * b5_7;
    s3_6 = s3_6 + x3_0 * b6_0 + x3_1 * b6_1 + x3_2 * b6_2 + x3_3 * b6_3 + x3_4 * b6_4 + x3_5 * b6_5 + x3_6 * b6_6 + x3_7 * b6_7;
    s3_7 = s3_7 + x3_0 * b7_0 + x3_1 * b7_1 + x3_2 * b7_2 + x3_3 * b7_3 + x3_4 * b7_4 + x3_5 * b7_5 + x3_6 * b7_6 + x3_7 * b7_7;
    let x4_0 = a4_0; let x4_1 = a4_1; let x4_2 = a4_2; let x4_3 = a4_3; let x4_4 = a4_4; let x4_5 = a4_5; let x4_6 = a4_6; let x4_7 = a4_7;
    s4_0 = s4_0 + x4_0 * b0_0 + x4_1 * b0_1 + x4_2 * b0_2 + x4_3 * b0_3 + x4_4 * b0_4 + x4_5 * b0_5 + x4_6 * b0_6 + x4_7 * b0_7;
    s4_1 = s4_1 + x4_0 * b1_0 + x4_1 * b1_1 + x4_2 * b1_2 + x4_3 * b1_3 + x4_4 * b1_4 + x4_5 * b1_5 + x4_6 * b1_6 + x4_7 * b1_7;
    s4_2 = s4_2 + x4_0 * b2_0 + x4_1 * b2_1 + x4_2 * b2_2 + x4_3 * b2_3 + x4_4 * b2_4 + x4_5 * b2_5 + x4_6 * b2_6 + x4_7 * b2_7;
    s4_3 = s4_3 + x4_0 * b3_0 + x4_1 * b3_1 + x4_2 * b3_2 + x4_3 * b3_3 + x4_4 * b3_4 + x4_5 * b3_5 + x4_6 * b3_6 + x4_7 * b3_7;
    s4_4 = s4_4 + x4_0 * b4_0 + x4_1 * b4_1 + x4_2 * b4_2 + x4_3 * b4_3 + x4_4 * b4_4 + x4_5 * b4_5 + x4_6 * b4_6 + x4_7 * b4_7;
    s4_5 = s4_5 + x4_0 * b5_0 + x4_1 * b5_1 + x4_2 * b5_2 + x4_3 * b5_3 + x4_4 * b5_4 + x4_5 * b5_5 + x4_6 * b5_6 + x4_7 * b5_7;
    s4_6 = s4_6 + x4_0 * b6_0 + x4_1 * b6_1 + x4_2 * b6_2 + x4_3 * b6_3 + x4_4 * b6_4 + x4_5 * b6_5 + x4_6 * b6_6 + x4_7 * b6_7;
    s4_7 = s4_7 + x4_0 * b7_0 + x4_1 * b7_1 + x4_2 * b7_2 + x4_3 * b7_3 + x4_4 * b7_4 + x4_5 * b7_5 + x4_6 * b7_6 + x4_7 * b7_7;
    let x5_0 = a5_0; let x5_1 = a5_1; let x5_2 = a5_2; let x5_3 = a5_3; let x5_4 = a5_4; let x5_5 = a5_5; let x5_6 = a5_6; let x5_7 = a5_7;
    s5_0 = s5_0 + x5_0 * b0_0 + x5_1 * b0_1 + x5_2 * b0_2 + x5_3 * b0_3 + x5_4 * b0_4 + x5_5 * b0_5 + x5_6 * b0_6 + x5_7 * b0_7;
    s5_1 = s5_1 + x5_0 * b1_0 + x5_1 * b1_1 + x5_2 * b1_2 + x5_3 * b1_3 + x5_4 * b1_4 + x5_5 * b1_5 + x5_6 * b1_6 + x5_7 * b1_7;
    s5_2 = s5_2 + x5_0 * b2_0 + x5_1 * b2_1 + x5_2 * b2_2 + x5_3 * b2_3 + x5_4 * b2_4 + x5_5 * b2_5 + x5_6 * b2_6 + x5_7 * b2_7;
    s5_3 = s5_3 + x5_0 * b3_0 + x5_1 * b3_1 + x5_2 * b3_2 + x5_3 * b3_3 + x5_4 * b3_4 + x5_5 * b3_5 + x5_6 * b3_6 + x5_7 * b3_7;
    s5_4 = s5_4 + x5_0 * b4_0 + x5_1 * b4_1 + x5_2 * b4_2 + x5_3 * b4_3 + x5_4 * b4_4 + x5_5 * b4_5 + x5_6 * b4_6 + x5_7 * b4_7;
    s5_5 = s5_5 + x5_0 * b5_0 + x5_1 * b5_1 + x5_2 * b5_2 + x5_3 * b5_3 + x5_4 * b5_4 + x5_5 * b5_5 + x5_6 * b5_6 + x5_7 * b5_7;
    s5_6 = s5_6 + x5_0 * b6_0 + x5_1 * b6_1 + x5_2 * b6_2 + x5_3 * b6_3 + x5_4 * b6_4 + x5_5 * b6_5 + x5_6 * b6_6 + x5_7 * b6_7;
    s5_7 = s5_7 + x5_0 * b7_0 + x5_1 * b7_1 + x5_2 * b7_2 + x5_3 * b7_3 + x5_4 * b7_4 + x5_5 * b7_5 + x5_6 * b7_6 + x5_7 * b7_7;
    let x6_0 = a6_0; let x6_1 = a6_1; let x6_2 = a6_2; let x6_3 = a6_3; let x6_4 = a6_4; let x6_5 = a6_5; let x6_6 = a6_6; let x6_7 = a6_7;
    s6_0 = s6_0 + x6_0 * b0_0 + x6_1 * b0_1 + x6_2 * b0_2 + x6_3 * b0_3 + x6_4 * b0_4 + x6_5 * b0_5 + x6_6 * b0_6 + x6_7 * b0_7;
    s6_1 = s6_1 + x6_0 * b1_0 + x6_1 * b1_1 + x6_2 * b1_2 + x6_3 * b1_3 + x6_4 * b1_4 + x6_5 * b1_5 + x6_6 * b1_6 + x6_7 * b1_7;
    s6_2 = s6_2 + x6_0 * b2_0 + x6_1 * b2_1 + x6_2 * b2_2 + x6_3 * b2_3 + x6_4 * b2_4 + x6_5 * b2_5 + x6_6 * b2_6 + x6_7 * b2_7;
    s6_3 = s6_3 + x6_0 * b3_0 + x6_1 * b3_1 + x6_2 * b3_2 + x6_3 * b3_3 + x6_4 * b3_4 + x6_5 * b3_5 + x6_6 * b3_6 + x6_7 * b3_7;
    s6_4 = s6_4 + x6_0 * b4_0 + x6_1 * b4_1 + x6_2 * b4_2 + x6_3 * b4_3 + x6_4 * b4_4 + x6_5 * b4_5 + x6_6 * b4_6 + x6_7 * b4_7;
    s6_5 = s6_5 + x6_0 * b5_0 + x6_1 * b5_1 + x6_2 * b5_2 + x6_3 * b5_3 + x6_4 * b5_4 + x6_5 * b5_5 + x6_6 * b5_6 + x6_7 * b5_7;
    s6_6 = s6_6 + x6_0 * b6_0 + x6_1 * b6_1 + x6_2 * b6_2 + x6_3 * b6_3 + x6_4 * b6_4 + x6_5 * b6_5 + x6_6 * b6_6 + x6_7 * b6_7;
    s6_7 = s6_7 + x6_0 * b7_0 + x6_1 * b7_1 + x6_2 * b7_2 + x6_3 * b7_3 + x6_4 * b7_4 + x6_5 * b7_5 + x6_6 * b7_6 + x6_7 * b7_7;
    let x7_0 = a7_0; let x7_1 = a7_1; let x7_2 = a7_2; let x7_3 = a7_3; let x7_4 = a7_4; let x7_5 = a7_5; let x7_6 = a7_6; let x7_7 = a7_7;
    s7_0 = s7_0 + x7_0 * b0_0 + x7_1 * b0_1 + x7_2 * b0_2 + x7_3 * b0_3 + x7_4 * b0_4 + x7_5 * b0_5 + x7_6 * b0_6 + x7_7 * b0_7;
    s7_1 = s7_1 + x7_0 * b1_0 + x7_1 * b1_1 + x7_2 * b1_2 + x7_3 * b1_3 + x7_4 * b1_4 + x7_5 * b1_5 + x7_6 * b1_6 + x7_7 * b1_7;
    s7_2 = s7_2 + x7_0 * b2_0 + x7_1 * b2_1 + x7_2 * b2_2 + x7_3 * b2_3 + x7_4 * b2_4 + x7_5 * b2_5 + x7_6 * b2_6 + x7_7 * b2_7;
    s7_3 = s7_3 + x7_0 * b3_0 + x7_1 * b3_1 + x7_2 * b3_2 + x7_3 * b3_3 + x7_4 * b3_4 + x7_5 * b3_5 + x7_6 * b3_6 + x7_7 * b3_7;
    s7_4 = s7_4 + x7_0 * b4_0 + x7_1 * b4_1 + x7_2 * b4_2 + x7_3 * b4_3 + x7_4 * b4_4 + x7_5 * b4_5 + x7_6 * b4_6 + x7_7 * b4_7;
    s7_5 = s7_5 + x7_0 * b5_0 + x7_1 * b5_1 + x7_2 * b5_2 + x7_3 * b5_3 + x7_4 * b5_4 + x7_5 * b5_5 + x7_6 * b5_6 + x7_7 * b5_7;
    s7_6 = s7_6 + x7_0 * b6_0 + x7_1 * b6_1 + x7_2 * b6_2 + x7_3 * b6_3 + x7_4 * b6_4 + x7_5 * b6_5 + x7_6 * b6_6 + x7_7 * b6_7;
    s7_7 = s7_7 + x7_0 * b7_0 + x7_1 * b7_1 + x7_2 * b7_2 + x7_3 * b7_3 + x7_4 * b7_4 + x7_5 * b7_5 + x7_6 * b7_6 + x7_7 * b7_7;
    ia0 += 8u; ia1 += 8u; ia2 += 8u; ia3 += 8u; ia4 += 8u; ia5 += 8u; ia6 += 8u; ia7 += 8u; ib += params.block;
  }

  if (col0 >= params.N) { return; }
  var sums = array<f32, 64>(
    s0_0, s0_1, s0_2, s0_3, s0_4, s0_5, s0_6, s0_7,
    s1_0, s1_1, s1_2, s1_3, s1_4, s1_5, s1_6, s1_7,
    s2_0, s2_1, s2_2, s2_3, s2_4, s2_5, s2_6, s2_7,
    s3_0, s3_1, s3_2, s3_3, s3_4, s3_5, s3_6, s3_7,
    s4_0, s4_1, s4_2, s4_3, s4_4, s4_5, s4_6, s4_7,
    s5_0, s5_1, s5_2, s5_3, s5_4, s5_5, s5_6, s5_7,
    s6_0, s6_1, s6_2, s6_3, s6_4, s6_5, s6_6, s6_7,
    s7_0, s7_1, s7_2, s7_3, s7_4, s7_5, s7_6, s7_7,
  );
  for (var i = 0u; i < 8u; i++) {
    let row = row0 + i;
    if (row >= params.M) { continue; }
    for (var j = 0u; j < 8u; j++) { put(row, col0 + j, sums[i * 8u + j]); }
  }
}
