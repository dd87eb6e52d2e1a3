// Second half of the global gradient norm, and the factor by which AdamW multiplies gradients:
//   norm = sqrt(sum partial),  scale = min(1, maxNorm / (norm + 1e-6)) like torch.nn.utils.clip_grad_norm_; maxNorm 0 = off
// If the norm is not finite, scale = 0 and ok = 0: adamw.wgsl then only clears the gradients.
//
//   partial  [slots]
//   clip     [3]      norm, scale, ok (1 or 0), written
//
// Grid      one thread.
// Checked   against a float64 norm in test/gpu/grad_clip.test.ts.

struct Params {
  slots: u32,
  maxNorm: f32,
}

@group(0) @binding(0) var<storage, read> partial: array<f32>;
@group(0) @binding(1) var<storage, read_write> clip: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(1)
fn main() {
  var sum = 0.0;
  for (var i = 0u; i < params.slots; i++) {
    sum += partial[i];
  }
  // Tests the exponent bits, because WGSL lets a compiler assume that NaN and infinity do not occur.
  let ok = (bitcast<u32>(sum) & 0x7f800000u) != 0x7f800000u;
  let norm = sqrt(sum);
  var scale = 1.0;
  if (params.maxNorm > 0.0) { scale = min(1.0, params.maxNorm / (norm + 1e-6)); }
  clip[0] = norm;
  clip[1] = select(0.0, scale, ok);
  clip[2] = select(0.0, 1.0, ok);
}
