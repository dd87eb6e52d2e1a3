enable subgroups;

// Product with a matrix in fewer bits: y[m, n] = sum over k of a[m, k] * w(k, n), then + add, then + y[m, n] if asked.
//
//   a     [M, K]
//   b     [blocks of words] of pack.wgsl; a block's values are neighbours in the matrix as it lies:
//         NT = false   w is [K, N]: runs of eight columns; run = N, block = 8 N, col = 1
//         NT = true    w is [N, K], transposed: runs of eight k; run = K, block = 8, col = K
//   add   added = 1: bias [N];  added = 2: [M, N], the residual stream;  added = 0: any buffer
//   y     [M, N]; read first when accumulate = 1
//
// Grid      a subgroup computes 4 x (8 * subgroup size) outputs, 4 x 8 a thread; workgroups in a row, folded over
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

override WG: u32 = 16u; // threads in a workgroup; a multiple of the subgroup size
override FORMAT: u32 = 0u; // as in pack.wgsl
override NT: bool = false;

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
  @builtin(subgroup_size) lanes: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let tile = (wg.y * grid.x + wg.x) * (WG / lanes) + tid / lanes;
  let across = (params.N + 8u * lanes - 1u) / (8u * lanes); // tiles side by side
  let row0 = tile / across * 4u;
  let col0 = (tile % across * lanes + lane) * 8u;
  // No early return: quadSwapX needs every lane. Rows and columns past the end compute the last ones again.

  var ia0 = min(row0 + 0u + lane % 4u, params.M - 1u) * params.K;
  var ib = min(col0, params.N - 8u) * params.col;
  var s0_0 = 0.0; var s0_1 = 0.0; var s0_2 = 0.0; var s0_3 = 0.0; var s0_4 = 0.0; var s0_5 = 0.0; var s0_6 = 0.0; var s0_7 = 0.0;
  var s1_0 = 0.0; var s1_1 = 0.0; var s1_2 = 0.0; var s1_3 = 0.0; var s1_4 = 0.0; var s1_5 = 0.0; var s1_6 = 0.0; var s1_7 = 0.0;
  var s2_0 = 0.0; var s2_1 = 0.0; var s2_2 = 0.0; var s2_3 = 0.0; var s2_4 = 0.0; var s2_5 = 0.0; var s2_6 = 0.0; var s2_7 = 0.0;
  var s3_0 = 0.0; var s3_1 = 0.0; var s3_2 = 0.0; var s3_3 = 0.0; var s3_4 = 0.0; var s3_5 = 0.0; var s3_6 = 0.0; var s3_7 = 0.0;

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
    let x1_0 = quadSwapX(a0_0); let x1_1 = quadSwapX(a0_1); let x1_2 = quadSwapX(a0_2); let x1_3 = quadSwapX(a0_3); let x1_4 = quadSwapX(a0_4); let x1_5 = quadSwapX(a0_5); let x1_6 = quadSwapX(a0_6); let x1_7 = quadSwapX(a0_7);
    s1_0 = s1_0 + x1_0 * b0_0 + x1_1 * b0_1 + x1_2 * b0_2 + x1_3 * b0_3 + x1_4 * b0_4 + x1_5 * b0_5 + x1_6 * b0_6 + x1_7 * b0_7;
    s1_1 = s1_1 + x1_0 * b1_0 + x1_1 * b1_1 + x1_2 * b1_2 + x1_3 * b1_3 + x1_4 * b1_4 + x1_5 * b1_5 + x1_6 * b1_6 + x1_7 * b1_7;
    s1_2 = s1_2 + x1_0 * b2_0 + x1_1 * b2_1 + x1_2 * b2_2 + x1_3 * b2_3 + x1_4 * b2_4 + x1_5 * b2_5 + x1_6 * b2_6 + x1_7 * b2_7;
    s1_3 = s1_3 + x1_0 * b3_0 + x1_1 * b3_1 + x1_2 * b3_2 + x1_3 * b3_3 + x1_4 * b3_4 + x1_5 * b3_5 + x1_6 * b3_6 + x1_7 * b3_7;
    s1_4 = s1_4 + x1_0 * b4_0 + x1_1 * b4_1 + x1_2 * b4_2 + x1_3 * b4_3 + x1_4 * b4_4 + x1_5 * b4_5 + x1_6 * b4_6 + x1_7 * b4_7;
    s1_5 = s1_5 + x1_0 * b5_0 + x1_1 * b5_1 + x1_2 * b5_2 + x1_3 * b5_3 + x1_4 * b5_4 + x1_5 * b5_5 + x1_6 * b5_6 + x1_7 * b5_7;
    s1_6 = s1_6 + x1_0 * b6_0 + x1_1 * b6_1 + x1_2 * b6_2 + x1_3 * b6_3 + x1_4 * b6_4 + x1_5 * b6_5 + x1_6 * b6_6 + x1_7 * b6_7;
    s1_7 = s1_7 + x1_0 * b7_0 + x1_1 * b7_1 + x1_2 * b7_2 + x1_3 * b7_3 + x1_4 * b7_4 + x1_5 * b7_5 + x1_6 * b7_6 + x1_7 * b7_7;
    let x2_0 = quadSwapY(a0_0); let x2_1 = quadSwapY(a0_1); let x2_2 = quadSwapY(a0_2); let x2_3 = quadSwapY(a0_3); let x2_4 = quadSwapY(a0_4); let x2_5 = quadSwapY(a0_5); let x2_6 = quadSwapY(a0_6); let x2_7 = quadSwapY(a0_7);
    s2_0 = s2_0 + x2_0 * b0_0 + x2_1 * b0_1 + x2_2 * b0_2 + x2_3 * b0_3 + x2_4 * b0_4 + x2_5 * b0_5 + x2_6 * b0_6 + x2_7 * b0_7;
    s2_1 = s2_1 + x2_0 * b1_0 + x2_1 * b1_1 + x2_2 * b1_2 + x2_3 * b1_3 + x2_4 * b1_4 + x2_5 * b1_5 + x2_6 * b1_6 + x2_7 * b1_7;
    s2_2 = s2_2 + x2_0 * b2_0 + x2_1 * b2_1 + x2_2 * b2_2 + x2_3 * b2_3 + x2_4 * b2_4 + x2_5 * b2_5 + x2_6 * b2_6 + x2_7 * b2_7;
    s2_3 = s2_3 + x2_0 * b3_0 + x2_1 * b3_1 + x2_2 * b3_2 + x2_3 * b3_3 + x2_4 * b3_4 + x2_5 * b3_5 + x2_6 * b3_6 + x2_7 * b3_7;
    s2_4 = s2_4 + x2_0 * b4_0 + x2_1 * b4_1 + x2_2 * b4_2 + x2_3 * b4_3 + x2_4 * b4_4 + x2_5 * b4_5 + x2_6 * b4_6 + x2_7 * b4_7;
    s2_5 = s2_5 + x2_0 * b5_0 + x2_1 * b5_1 + x2_2 * b5_2 + x2_3 * b5_3 + x2_4 * b5_4 + x2_5 * b5_5 + x2_6 * b5_6 + x2_7 * b5_7;
    s2_6 = s2_6 + x2_0 * b6_0 + x2_1 * b6_1 + x2_2 * b6_2 + x2_3 * b6_3 + x2_4 * b6_4 + x2_5 * b6_5 + x2_6 * b6_6 + x2_7 * b6_7;
    s2_7 = s2_7 + x2_0 * b7_0 + x2_1 * b7_1 + x2_2 * b7_2 + x2_3 * b7_3 + x2_4 * b7_4 + x2_5 * b7_5 + x2_6 * b7_6 + x2_7 * b7_7;
    let x3_0 = quadSwapDiagonal(a0_0); let x3_1 = quadSwapDiagonal(a0_1); let x3_2 = quadSwapDiagonal(a0_2); let x3_3 = quadSwapDiagonal(a0_3); let x3_4 = quadSwapDiagonal(a0_4); let x3_5 = quadSwapDiagonal(a0_5); let x3_6 = quadSwapDiagonal(a0_6); let x3_7 = quadSwapDiagonal(a0_7);
    s3_0 = s3_0 + x3_0 * b0_0 + x3_1 * b0_1 + x3_2 * b0_2 + x3_3 * b0_3 + x3_4 * b0_4 + x3_5 * b0_5 + x3_6 * b0_6 + x3_7 * b0_7;
    s3_1 = s3_1 + x3_0 * b1_0 + x3_1 * b1_1 + x3_2 * b1_2 + x3_3 * b1_3 + x3_4 * b1_4 + x3_5 * b1_5 + x3_6 * b1_6 + x3_7 * b1_7;
    s3_2 = s3_2 + x3_0 * b2_0 + x3_1 * b2_1 + x3_2 * b2_2 + x3_3 * b2_3 + x3_4 * b2_4 + x3_5 * b2_5 + x3_6 * b2_6 + x3_7 * b2_7;
    s3_3 = s3_3 + x3_0 * b3_0 + x3_1 * b3_1 + x3_2 * b3_2 + x3_3 * b3_3 + x3_4 * b3_4 + x3_5 * b3_5 + x3_6 * b3_6 + x3_7 * b3_7;
    s3_4 = s3_4 + x3_0 * b4_0 + x3_1 * b4_1 + x3_2 * b4_2 + x3_3 * b4_3 + x3_4 * b4_4 + x3_5 * b4_5 + x3_6 * b4_6 + x3_7 * b4_7;
    s3_5 = s3_5 + x3_0 * b5_0 + x3_1 * b5_1 + x3_2 * b5_2 + x3_3 * b5_3 + x3_4 * b5_4 + x3_5 * b5_5 + x3_6 * b5_6 + x3_7 * b5_7;
    s3_6 = s3_6 + x3_0 * b6_0 + x3_1 * b6_1 + x3_2 * b6_2 + x3_3 * b6_3 + x3_4 * b6_4 + x3_5 * b6_5 + x3_6 * b6_6 + x3_7 * b6_7;
    s3_7 = s3_7 + x3_0 * b7_0 + x3_1 * b7_1 + x3_2 * b7_2 + x3_3 * b7_3 + x3_4 * b7_4 + x3_5 * b7_5 + x3_6 * b7_6 + x3_7 * b7_7;
    ia0 += 8u; ib += params.block;
  }

  if (col0 >= params.N) { return; }
  var sums = array<f32, 32>(
    s0_0, s0_1, s0_2, s0_3, s0_4, s0_5, s0_6, s0_7,
    s1_0, s1_1, s1_2, s1_3, s1_4, s1_5, s1_6, s1_7,
    s2_0, s2_1, s2_2, s2_3, s2_4, s2_5, s2_6, s2_7,
    s3_0, s3_1, s3_2, s3_3, s3_4, s3_5, s3_6, s3_7,
  );
  for (var i = 0u; i < 4u; i++) {
    let row = row0 + (i & ~3u) + ((lane ^ i) & 3u); // whose sums they are after the swaps
    if (row >= params.M) { continue; }
    for (var j = 0u; j < 8u; j++) { put(row, col0 + j, sums[i * 8u + j]); }
  }
}
