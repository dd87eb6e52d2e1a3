// Packs weights into fewer bits, in blocks of 32 neighbouring values:
//   FORMAT 0, float16   16 words: two halves each, the earlier one in the low bits
//   FORMAT 1, int8       9 words: scale (f32), then four values per word:  x ~ (q - 128) scale, q of 0..255
//   FORMAT 2, int4       5 words: scale (f32), then eight values per word: x ~ (q - 8) scale, q of 0..15
// The scale makes the block's largest value -128 (or -8) exactly, including the sign. A value of the opposite sign and equal size
// is clipped by one step.
//
//   x       [n]
//   words   [ceil(n / 32) blocks of words]  written; values past n are 0
//
// Grid      one thread per block.
// Checked   with unpack.wgsl against quantize() in src/extensions/verify/reference/ops.ts by test/gpu/pack_unpack.test.ts.

struct Params {
  n: u32,
}

override WG: u32 = 64u;
override FORMAT: u32 = 0u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> words: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

fn value(i: u32) -> f32 {
  if (i >= params.n) { return 0.0; }
  return x[i];
}

fn packHalves(group: u32) {
  for (var w = 0u; w < 16u; w++) {
    let i = group * 32u + w * 2u;
    words[group * 16u + w] = pack2x16float(vec2f(value(i), value(i + 1u)));
  }
}

fn packIntegers(group: u32, bits: u32) {
  var top = 0.0;
  for (var e = 0u; e < 32u; e++) {
    let v = value(group * 32u + e);
    if (abs(v) > abs(top)) { top = v; }
  }
  let zero = f32(1u << (bits - 1u));
  let scale = -top / zero;
  var inverse = 0.0;
  if (top != 0.0) { inverse = -zero / top; }
  let each = 32u / bits;
  let at = group * (1u + bits);
  words[at] = bitcast<u32>(scale);
  for (var w = 0u; w < bits; w++) {
    var word = 0u;
    for (var j = 0u; j < each; j++) {
      let q = clamp(round(value(group * 32u + w * each + j) * inverse) + zero, 0.0, 2.0 * zero - 1.0);
      word |= u32(q) << (j * bits);
    }
    words[at + 1u + w] = word;
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let group = (wg.y * grid.x + wg.x) * WG + tid;
  if (group * 32u >= params.n) { return; }
  if (FORMAT == 0u) { packHalves(group); }
  if (FORMAT == 1u) { packIntegers(group, 8u); }
  if (FORMAT == 2u) { packIntegers(group, 4u); }
}
