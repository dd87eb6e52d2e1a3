enable subgroups;

// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked.
//
//   a     any layout: a(m, k) = a[m * rowA + k * stepA]      NN, NT: rowA = K, stepA = 1    TN: rowA = 1, stepA = M
//   b     any layout: b(k, n) = b[k * stepB + n * colB]      NN, TN: stepB = N, colB = 1    NT: stepB = 1, colB = K
//   add   added = 1: bias [N];  added = 2: [M, N], the residual stream;  added = 0: any buffer
//   y     [M, N]; read first when accumulate = 1 (weight gradients). Not overrides: a large tile takes a software
//         adapter a second to compile, a branch an output nothing that shows
//         added = 3: b holds gate in its first N / 2 columns, up in the rest, and y [M, N / 2] = silu(gate) * up, the bits
//         of swiglu.wgsl after the product (arXiv:2002.05202); not onto halves; any add, accumulate = 0
//
// Grid      a subgroup computes 4 x (4 * subgroup size) outputs, 4 x 4 a thread, columns a stride of the subgroup size apart;
//           workgroups in a row, folded over x and y past 65535. Any M, K, N >= 1.
// Numerics  one thread sums each output over k in ascending order, s = s + a * b, from 0: the same bits whatever the
//           tile, M or the position in the batch. Printed by scripts/gen-matmul.mjs: edit scripts/lib/matmulTile.mjs.
// Checked   against a float64 product by test/gpu/matmul.test.ts.

struct Params {
  M: u32,      // rows of y
  N: u32,      // columns of y
  K: u32,      // summed over
  rowA: u32,   // a: from one m to the next
  stepA: u32,  // a: from one k to the next
  stepB: u32,  // b: from one k to the next
  colB: u32,   // b: from one n to the next
  added: u32,
  accumulate: u32,
}

override WG: u32 = 16u; // threads in a workgroup; a multiple of the subgroup size

alias A = f32; // each f16 where its buffer holds halves (src/gpu/halves.ts)
alias B = f32;
alias Y = f32;

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(2) var<storage, read> add: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<Y>;
@group(0) @binding(4) var<uniform> params: Params;

fn gated(gate: f32, up: f32) -> f32 {
  return gate / (1.0 + exp(-gate)) * up;
}

fn put(row: u32, col: u32, width: u32, sum: f32, up: f32) {
  if (row >= params.M || col >= width) { return; }
  var value = sum;
  if (params.added == 1u) { value += add[col]; }
  if (params.added == 2u) { value += add[row * width + col]; }
  if (params.added == 3u) { value = gated(sum, up); }
  if (params.accumulate == 1u) { value += f32(y[row * width + col]); }
  y[row * width + col] = Y(value);
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
  let pairs = params.added == 3u;
  let width = select(params.N, params.N / 2u, pairs); // of y
  let own = select(4u, 2u, pairs); // columns of y a thread
  let across = (width + own * lanes - 1u) / (own * lanes); // tiles side by side
  // The second half of a thread's columns of b end at `last`; up's lie `shift` further on, which may wrap, and wraps back.
  let last = width - 1u + select(0u, 2u * lanes, pairs);
  let shift = select(0u, width - 2u * lanes, pairs);
  let row0 = tile / across * 4u;
  let col0 = tile % across * own * lanes + lane;
  // No early return: quadSwapX needs every lane. Rows and columns past the end compute the last one again.

  var ia0 = min(row0 + 0u + lane % 4u, params.M - 1u) * params.rowA;
  var ib0 = min(col0, width - 1u) * params.colB;
  var ib1 = min(col0 + 1u * lanes, width - 1u) * params.colB;
  var ib2 = (min(col0 + 2u * lanes, last) + shift) * params.colB;
  var ib3 = (min(col0 + 3u * lanes, last) + shift) * params.colB;
  var s0_0 = 0.0; var s0_1 = 0.0; var s0_2 = 0.0; var s0_3 = 0.0;
  var s1_0 = 0.0; var s1_1 = 0.0; var s1_2 = 0.0; var s1_3 = 0.0;
  var s2_0 = 0.0; var s2_1 = 0.0; var s2_2 = 0.0; var s2_3 = 0.0;
  var s3_0 = 0.0; var s3_1 = 0.0; var s3_2 = 0.0; var s3_3 = 0.0;

  var k = 0u;
  for (; k + 7u < params.K; k += 8u) {
    let a0_0 = f32(a[ia0]);
    let a0_1 = f32(a[ia0 + 1u * params.stepA]);
    let a0_2 = f32(a[ia0 + 2u * params.stepA]);
    let a0_3 = f32(a[ia0 + 3u * params.stepA]);
    let a0_4 = f32(a[ia0 + 4u * params.stepA]);
    let a0_5 = f32(a[ia0 + 5u * params.stepA]);
    let a0_6 = f32(a[ia0 + 6u * params.stepA]);
    let a0_7 = f32(a[ia0 + 7u * params.stepA]);
    let x0_0 = a0_0; let x0_1 = a0_1; let x0_2 = a0_2; let x0_3 = a0_3; let x0_4 = a0_4; let x0_5 = a0_5; let x0_6 = a0_6; let x0_7 = a0_7;
    let x1_0 = quadSwapX(a0_0); let x1_1 = quadSwapX(a0_1); let x1_2 = quadSwapX(a0_2); let x1_3 = quadSwapX(a0_3); let x1_4 = quadSwapX(a0_4); let x1_5 = quadSwapX(a0_5); let x1_6 = quadSwapX(a0_6); let x1_7 = quadSwapX(a0_7);
    let x2_0 = quadSwapY(a0_0); let x2_1 = quadSwapY(a0_1); let x2_2 = quadSwapY(a0_2); let x2_3 = quadSwapY(a0_3); let x2_4 = quadSwapY(a0_4); let x2_5 = quadSwapY(a0_5); let x2_6 = quadSwapY(a0_6); let x2_7 = quadSwapY(a0_7);
    let x3_0 = quadSwapDiagonal(a0_0); let x3_1 = quadSwapDiagonal(a0_1); let x3_2 = quadSwapDiagonal(a0_2); let x3_3 = quadSwapDiagonal(a0_3); let x3_4 = quadSwapDiagonal(a0_4); let x3_5 = quadSwapDiagonal(a0_5); let x3_6 = quadSwapDiagonal(a0_6); let x3_7 = quadSwapDiagonal(a0_7);
    let b0_0 = f32(b[ib0]);
    let b0_1 = f32(b[ib0 + 1u * params.stepB]);
    let b0_2 = f32(b[ib0 + 2u * params.stepB]);
    let b0_3 = f32(b[ib0 + 3u * params.stepB]);
    let b0_4 = f32(b[ib0 + 4u * params.stepB]);
    let b0_5 = f32(b[ib0 + 5u * params.stepB]);
    let b0_6 = f32(b[ib0 + 6u * params.stepB]);
    let b0_7 = f32(b[ib0 + 7u * params.stepB]);
    s0_0 = s0_0 + x0_0 * b0_0 + x0_1 * b0_1 + x0_2 * b0_2 + x0_3 * b0_3 + x0_4 * b0_4 + x0_5 * b0_5 + x0_6 * b0_6 + x0_7 * b0_7;
    s1_0 = s1_0 + x1_0 * b0_0 + x1_1 * b0_1 + x1_2 * b0_2 + x1_3 * b0_3 + x1_4 * b0_4 + x1_5 * b0_5 + x1_6 * b0_6 + x1_7 * b0_7;
    s2_0 = s2_0 + x2_0 * b0_0 + x2_1 * b0_1 + x2_2 * b0_2 + x2_3 * b0_3 + x2_4 * b0_4 + x2_5 * b0_5 + x2_6 * b0_6 + x2_7 * b0_7;
    s3_0 = s3_0 + x3_0 * b0_0 + x3_1 * b0_1 + x3_2 * b0_2 + x3_3 * b0_3 + x3_4 * b0_4 + x3_5 * b0_5 + x3_6 * b0_6 + x3_7 * b0_7;
    let b1_0 = f32(b[ib1]);
    let b1_1 = f32(b[ib1 + 1u * params.stepB]);
    let b1_2 = f32(b[ib1 + 2u * params.stepB]);
    let b1_3 = f32(b[ib1 + 3u * params.stepB]);
    let b1_4 = f32(b[ib1 + 4u * params.stepB]);
    let b1_5 = f32(b[ib1 + 5u * params.stepB]);
    let b1_6 = f32(b[ib1 + 6u * params.stepB]);
    let b1_7 = f32(b[ib1 + 7u * params.stepB]);
    s0_1 = s0_1 + x0_0 * b1_0 + x0_1 * b1_1 + x0_2 * b1_2 + x0_3 * b1_3 + x0_4 * b1_4 + x0_5 * b1_5 + x0_6 * b1_6 + x0_7 * b1_7;
    s1_1 = s1_1 + x1_0 * b1_0 + x1_1 * b1_1 + x1_2 * b1_2 + x1_3 * b1_3 + x1_4 * b1_4 + x1_5 * b1_5 + x1_6 * b1_6 + x1_7 * b1_7;
    s2_1 = s2_1 + x2_0 * b1_0 + x2_1 * b1_1 + x2_2 * b1_2 + x2_3 * b1_3 + x2_4 * b1_4 + x2_5 * b1_5 + x2_6 * b1_6 + x2_7 * b1_7;
    s3_1 = s3_1 + x3_0 * b1_0 + x3_1 * b1_1 + x3_2 * b1_2 + x3_3 * b1_3 + x3_4 * b1_4 + x3_5 * b1_5 + x3_6 * b1_6 + x3_7 * b1_7;
    let b2_0 = f32(b[ib2]);
    let b2_1 = f32(b[ib2 + 1u * params.stepB]);
    let b2_2 = f32(b[ib2 + 2u * params.stepB]);
    let b2_3 = f32(b[ib2 + 3u * params.stepB]);
    let b2_4 = f32(b[ib2 + 4u * params.stepB]);
    let b2_5 = f32(b[ib2 + 5u * params.stepB]);
    let b2_6 = f32(b[ib2 + 6u * params.stepB]);
    let b2_7 = f32(b[ib2 + 7u * params.stepB]);
    s0_2 = s0_2 + x0_0 * b2_0 + x0_1 * b2_1 + x0_2 * b2_2 + x0_3 * b2_3 + x0_4 * b2_4 + x0_5 * b2_5 + x0_6 * b2_6 + x0_7 * b2_7;
    s1_2 = s1_2 + x1_0 * b2_0 + x1_1 * b2_1 + x1_2 * b2_2 + x1_3 * b2_3 + x1_4 * b2_4 + x1_5 * b2_5 + x1_6 * b2_6 + x1_7 * b2_7;
    s2_2 = s2_2 + x2_0 * b2_0 + x2_1 * b2_1 + x2_2 * b2_2 + x2_3 * b2_3 + x2_4 * b2_4 + x2_5 * b2_5 + x2_6 * b2_6 + x2_7 * b2_7;
    s3_2 = s3_2 + x3_0 * b2_0 + x3_1 * b2_1 + x3_2 * b2_2 + x3_3 * b2_3 + x3_4 * b2_4 + x3_5 * b2_5 + x3_6 * b2_6 + x3_7 * b2_7;
    let b3_0 = f32(b[ib3]);
    let b3_1 = f32(b[ib3 + 1u * params.stepB]);
    let b3_2 = f32(b[ib3 + 2u * params.stepB]);
    let b3_3 = f32(b[ib3 + 3u * params.stepB]);
    let b3_4 = f32(b[ib3 + 4u * params.stepB]);
    let b3_5 = f32(b[ib3 + 5u * params.stepB]);
    let b3_6 = f32(b[ib3 + 6u * params.stepB]);
    let b3_7 = f32(b[ib3 + 7u * params.stepB]);
    s0_3 = s0_3 + x0_0 * b3_0 + x0_1 * b3_1 + x0_2 * b3_2 + x0_3 * b3_3 + x0_4 * b3_4 + x0_5 * b3_5 + x0_6 * b3_6 + x0_7 * b3_7;
    s1_3 = s1_3 + x1_0 * b3_0 + x1_1 * b3_1 + x1_2 * b3_2 + x1_3 * b3_3 + x1_4 * b3_4 + x1_5 * b3_5 + x1_6 * b3_6 + x1_7 * b3_7;
    s2_3 = s2_3 + x2_0 * b3_0 + x2_1 * b3_1 + x2_2 * b3_2 + x2_3 * b3_3 + x2_4 * b3_4 + x2_5 * b3_5 + x2_6 * b3_6 + x2_7 * b3_7;
    s3_3 = s3_3 + x3_0 * b3_0 + x3_1 * b3_1 + x3_2 * b3_2 + x3_3 * b3_3 + x3_4 * b3_4 + x3_5 * b3_5 + x3_6 * b3_6 + x3_7 * b3_7;
    ia0 += 8u * params.stepA;
    ib0 += 8u * params.stepB; ib1 += 8u * params.stepB; ib2 += 8u * params.stepB; ib3 += 8u * params.stepB;
  }
  for (; k < params.K; k++) {
    let a0_0 = f32(a[ia0]);
    let x0_0 = a0_0;
    let x1_0 = quadSwapX(a0_0);
    let x2_0 = quadSwapY(a0_0);
    let x3_0 = quadSwapDiagonal(a0_0);
    let b0_0 = f32(b[ib0]);
    s0_0 = s0_0 + x0_0 * b0_0;
    s1_0 = s1_0 + x1_0 * b0_0;
    s2_0 = s2_0 + x2_0 * b0_0;
    s3_0 = s3_0 + x3_0 * b0_0;
    let b1_0 = f32(b[ib1]);
    s0_1 = s0_1 + x0_0 * b1_0;
    s1_1 = s1_1 + x1_0 * b1_0;
    s2_1 = s2_1 + x2_0 * b1_0;
    s3_1 = s3_1 + x3_0 * b1_0;
    let b2_0 = f32(b[ib2]);
    s0_2 = s0_2 + x0_0 * b2_0;
    s1_2 = s1_2 + x1_0 * b2_0;
    s2_2 = s2_2 + x2_0 * b2_0;
    s3_2 = s3_2 + x3_0 * b2_0;
    let b3_0 = f32(b[ib3]);
    s0_3 = s0_3 + x0_0 * b3_0;
    s1_3 = s1_3 + x1_0 * b3_0;
    s2_3 = s2_3 + x2_0 * b3_0;
    s3_3 = s3_3 + x3_0 * b3_0;
    ia0 += params.stepA;
    ib0 += params.stepB; ib1 += params.stepB; ib2 += params.stepB; ib3 += params.stepB;
  }

  var sums = array<f32, 16>(
    s0_0, s0_1, s0_2, s0_3,
    s1_0, s1_1, s1_2, s1_3,
    s2_0, s2_1, s2_2, s2_3,
    s3_0, s3_1, s3_2, s3_3,
  );
  let within = col0 - lane + own * lanes <= width && params.accumulate == 0u;
  if (within && params.added == 0u) {
    for (var i = 0u; i < 4u; i++) {
      let row = row0 + (i & ~3u) + ((lane ^ i) & 3u); // whose sums they are after the swaps
      if (row >= params.M) { continue; }
      let at = row * width + col0;
      y[at] = Y(sums[i * 4u + 0u]);
      y[at + 1u * lanes] = Y(sums[i * 4u + 1u]);
      y[at + 2u * lanes] = Y(sums[i * 4u + 2u]);
      y[at + 3u * lanes] = Y(sums[i * 4u + 3u]);
    }
  } else if (within && params.added == 2u) {
    for (var i = 0u; i < 4u; i++) {
      let row = row0 + (i & ~3u) + ((lane ^ i) & 3u); // whose sums they are after the swaps
      if (row >= params.M) { continue; }
      let at = row * width + col0;
      y[at] = Y(sums[i * 4u + 0u] + add[at]);
      y[at + 1u * lanes] = Y(sums[i * 4u + 1u] + add[at + 1u * lanes]);
      y[at + 2u * lanes] = Y(sums[i * 4u + 2u] + add[at + 2u * lanes]);
      y[at + 3u * lanes] = Y(sums[i * 4u + 3u] + add[at + 3u * lanes]);
    }
  } else if (within && params.added == 3u) {
    for (var i = 0u; i < 4u; i++) {
      let row = row0 + (i & ~3u) + ((lane ^ i) & 3u); // whose sums they are after the swaps
      if (row >= params.M) { continue; }
      let at = row * width + col0;
      y[at] = Y(gated(sums[i * 4u + 0u], sums[i * 4u + 2u]));
      y[at + 1u * lanes] = Y(gated(sums[i * 4u + 1u], sums[i * 4u + 3u]));
    }
  } else {
    for (var i = 0u; i < 4u; i++) {
      let row = row0 + (i & ~3u) + ((lane ^ i) & 3u); // whose sums they are after the swaps
      for (var j = 0u; j < own; j++) {
        put(row, col0 + j * lanes, width, sums[i * 4u + j], sums[i * 4u + (j + 2u) % 4u]);
      }
    }
  }
}
