// Splits the fused q/k/v product, rotates q and k (half-split RoPE), and writes k and v to the cache that attention reads:
//   q'[i] = q[i] cos - q[i + D/2] sin,  q'[i + D/2] = q[i + D/2] cos + q[i] sin,  i < D/2
//
//   qkv        [N, (H + 2K) * D]   q heads, then k heads, then v heads
//   positions  [N]
//   kvRows     [N]                 row of kv for token n: its own row in training, a cache row in rollout
//   table      [P, D]              cos of position p in the first D/2 columns, sin in the rest
//   q          [N, H * D]          written
//   kv         [rows, 2 * K * D]   written at kvRows: k heads, then v heads
//
// Grid      one thread per (row, 4 heads, pair): they share an angle.
// Paper     Su et al. 2021, arXiv:2104.09864, in the half-split order of the Llama checkpoints.
// Checked   against rope() in src/extensions/verify/reference/ops.ts by test/gpu/rope_kv.test.ts.

struct Params {
  N: u32,
  H: u32,
  K: u32,
  D: u32,
}

override WG: u32 = 64u;

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> qkv: array<Act>;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read> kvRows: array<u32>;
@group(0) @binding(3) var<storage, read> table: array<f32>;
@group(0) @binding(4) var<storage, read_write> q: array<Act>;
@group(0) @binding(5) var<storage, read_write> kv: array<Act>;
@group(0) @binding(6) var<uniform> params: Params;

// Reads one pair of one head, rotates it unless it belongs to v, and writes it to q or kv.
fn turn(n: u32, kvRow: u32, head: u32, i: u32, c: f32, s: f32) {
  let half = params.D / 2u;
  let heads = params.H + 2u * params.K;
  let src = (n * heads + head) * params.D + i;
  let a = f32(qkv[src]);
  let b = f32(qkv[src + half]);
  if (head < params.H) {
    let dst = (n * params.H + head) * params.D + i;
    q[dst] = Act(a * c - b * s);
    q[dst + half] = Act(b * c + a * s);
  } else {
    let dst = (kvRow * 2u * params.K + head - params.H) * params.D + i;
    let rotated = head < params.H + params.K;
    kv[dst] = Act(select(a, a * c - b * s, rotated));
    kv[dst + half] = Act(select(b, b * c + a * s, rotated));
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let t = (wg.y * grid.x + wg.x) * WG + tid;
  let half = params.D / 2u;
  let heads = params.H + 2u * params.K;
  let blocks = (heads + 3u) / 4u;
  let n = t / (blocks * half);
  if (n >= params.N) { return; }
  let head = t / half % blocks * 4u;
  let i = t % half;

  let at = positions[n] * params.D + i;
  let c = table[at];
  let s = table[at + half];
  let kvRow = kvRows[n];
  turn(n, kvRow, head, i, c, s);
  turn(n, kvRow, min(head + 1u, heads - 1u), i, c, s); // past the end: the last head again
  turn(n, kvRow, min(head + 2u, heads - 1u), i, c, s);
  turn(n, kvRow, min(head + 3u, heads - 1u), i, c, s);
}
