// Converts weights of pack.wgsl back to float32: y[i] = value i, or with GATHER rows of a table,
//   y[n, c] = value (tokens[n] - first) * C + c
//
//   words   [blocks of words]  see pack.wgsl
//   tokens  [N]                GATHER = 1: rows of the table, counted from `first`; otherwise any buffer
//   y       [N, C]             rows of tokens outside first .. first + rows - 1 stay unchanged
//
// Grid      one thread per element of y. Without GATHER, C = 1 and N = elements. Numerics: one product.
// Checked   with pack.wgsl against quantize() in src/extensions/verify/reference/ops.ts by test/gpu/pack_unpack.test.ts.

struct Params {
  N: u32,
  C: u32,
  first: u32,
  rows: u32,
}

override WG: u32 = 64u;
override FORMAT: u32 = 0u;
override GATHER: u32 = 0u;

@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

fn integer(i: u32, bits: u32) -> f32 {
  let at = (i / 32u) * (1u + bits);
  let bit = (i % 32u) * bits;
  let q = extractBits(words[at + 1u + bit / 32u], bit % 32u, bits);
  return (f32(q) - f32(1u << (bits - 1u))) * bitcast<f32>(words[at]);
}

fn value(i: u32) -> f32 {
  if (FORMAT == 1u) { return integer(i, 8u); }
  if (FORMAT == 2u) { return integer(i, 4u); }
  return unpack2x16float(words[i / 2u])[i % 2u];
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.N * params.C) { return; }
  if (GATHER == 0u) {
    y[i] = value(i);
    return;
  }
  let row = tokens[i / params.C] - params.first; // for a token before `first` this wraps to a number far above `rows`
  if (row >= params.rows) { return; }
  y[i] = value(row * params.C + i % params.C);
}
