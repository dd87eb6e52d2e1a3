// Log-prob of each entry's target, and the entropy of its predicting row, for the rows of one chunk.
//
//   logits    [R, V]   rows firstRow .. firstRow + R - 1 of the head rows
//   stats     [R, 2]   from head_stats.wgsl
//   entryRow  [E]      head row of each entry
//   targets   [E]
//   logp      [E]      written if the entry's row is in this chunk
//   entropy   [E]      likewise
//
// Grid      one thread per entry.
// Checked   against head() in src/extensions/verify/reference/ops.ts by test/gpu/head_logprob.test.ts.

struct Params {
  E: u32,
  R: u32,
  V: u32,
  firstRow: u32,
  invT: f32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> stats: array<f32>;
@group(0) @binding(2) var<storage, read> entryRow: array<u32>;
@group(0) @binding(3) var<storage, read> targets: array<u32>;
@group(0) @binding(4) var<storage, read_write> logp: array<f32>;
@group(0) @binding(5) var<storage, read_write> entropy: array<f32>;
@group(0) @binding(6) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let e = (wg.y * grid.x + wg.x) * WG + tid;
  if (e >= params.E) { return; }
  let row = entryRow[e];
  if (row < params.firstRow || row >= params.firstRow + params.R) { return; }
  let r = row - params.firstRow;
  logp[e] = logits[r * params.V + targets[e]] * params.invT - stats[r * 2u];
  entropy[e] = stats[r * 2u + 1u];
}
