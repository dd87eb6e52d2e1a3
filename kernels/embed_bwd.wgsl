// Embedding gradient: dtable[ids[u]] += sum of dx over the rows whose token is ids[u].
//
//   ids       [U]      the distinct tokens of the batch
//   start     [U + 1]  rows of distinct token u are rows[start[u]] .. rows[start[u + 1] - 1]
//   rows      [N]      row numbers sorted by token (on the host), ascending within a token
//   dx        [N, C]
//   dtable    [count, C]  accumulates; tokens first .. first + count - 1 of the vocabulary; other tokens are skipped
//
// Grid      one thread per (distinct token, channel). No atomics: the order of every sum is fixed.
// Checked   against embeddingBwd() in src/extensions/verify/reference/ops.ts by test/gpu/embed_bwd.test.ts.

struct Params {
  U: u32,
  C: u32,
  first: u32,
  count: u32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read> start: array<u32>;
@group(0) @binding(2) var<storage, read> rows: array<u32>;
@group(0) @binding(3) var<storage, read> dx: array<f32>;
@group(0) @binding(4) var<storage, read_write> dtable: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.U * params.C) { return; }
  let u = i / params.C;
  let c = i % params.C;
  let row = ids[u] - params.first; // for a token before `first` this wraps to a number far above `count`
  if (row >= params.count) { return; }
  var sum = 0.0;
  for (var r = start[u]; r < start[u + 1u]; r++) {
    sum += dx[rows[r] * params.C + c];
  }
  dtable[row * params.C + c] += sum;
}
