// Position of each entry's target in the cumulative distribution of its row, in token order, at a temperature:
//   below = sum_{j < target} p_j,  through = below + p_target,  total = sum_j p_j,  p_j = exp(logits_j / T - lse)
// A random number u of sample.wgsl samples the target if below <= u * total < through.
//
//   logits    [R, V]   rows firstRow .. firstRow + R - 1 of the head rows
//   stats     [R, 2]   from head_stats.wgsl
//   entryRow  [E]      head row of each entry
//   targets   [E]
//   cdf       [E, 3]   below, through, total; written if the entry's row is in this chunk
//
// Grid      one workgroup per entry.
// Numerics  the order of the sums is that of sample.wgsl: WG threads over V / WG neighbouring columns each, in blocks, then the
//           threads in order. With the WG of the sampler the comparison is the sampler's own, bit for bit.
// Checked   against headCdf() in src/extensions/verify/reference/ops.ts, and against samples of sample.wgsl, by test/gpu/head_cdf.test.ts.

struct Params {
  E: u32,
  R: u32,
  V: u32,
  firstRow: u32,
  invT: f32,
}

override WG: u32 = 64u;

const BLOCK = 512u; // as in sample.wgsl

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> stats: array<f32>;
@group(0) @binding(2) var<storage, read> entryRow: array<u32>;
@group(0) @binding(3) var<storage, read> targets: array<u32>;
@group(0) @binding(4) var<storage, read_write> cdf: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

var<workgroup> part: array<f32, WG>;

/** Mass of columns first .. end - 1. */
fn massOf(base: u32, first: u32, end: u32, lse: f32) -> f32 {
  var mass = 0.0;
  for (var j = first; j < end; j++) { mass += exp(logits[base + j] * params.invT - lse); }
  return mass;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let e = wg.y * grid.x + wg.x;
  if (e >= params.E) { return; }
  let row = entryRow[e];
  if (row < params.firstRow || row >= params.firstRow + params.R) { return; }
  let base = (row - params.firstRow) * params.V;
  let lse = stats[(row - params.firstRow) * 2u];
  let span = (params.V + WG - 1u) / WG;
  let first = min(tid * span, params.V);
  let end = min(first + span, params.V);

  var mass = 0.0;
  for (var j = first; j < end; j += BLOCK) { mass += massOf(base, j, min(j + BLOCK, end), lse); }
  part[tid] = mass;
  workgroupBarrier();
  if (tid != 0u) { return; }

  let token = targets[e];
  let owner = token / span;
  var below = 0.0;
  var total = 0.0;
  for (var t = 0u; t < WG; t++) {
    if (t < owner) { below += part[t]; }
    total += part[t];
  }
  var chunk = owner * span;
  while (token >= chunk + BLOCK) {
    below += massOf(base, chunk, chunk + BLOCK, lse);
    chunk += BLOCK;
  }
  let through = below + massOf(base, chunk, token + 1u, lse);
  below += massOf(base, chunk, token, lse);
  cdf[e * 3u] = below;
  cdf[e * 3u + 1u] = through;
  cdf[e * 3u + 2u] = total;
}
