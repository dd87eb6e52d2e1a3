// Backward of rope_kv.wgsl: rotates dq and dk back and gathers the fused gradient. Training rows only (kvRows[n] = n).
//
//   dq         [N, H * D]
//   dkv        [N, 2 * K * D]      k heads, then v heads
//   positions  [N]
//   table      [P, D]
//   dqkv       [N, (H + 2K) * D]   written
//
// Grid      one thread per (row, 4 heads, pair): they share an angle.
// Checked   against ropeBwd() in src/extensions/verify/reference/ops.ts by test/gpu/rope_kv_bwd.test.ts.

struct Params {
  N: u32,
  H: u32,
  K: u32,
  D: u32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> dq: array<f32>;
@group(0) @binding(1) var<storage, read> dkv: array<f32>;
@group(0) @binding(2) var<storage, read> positions: array<u32>;
@group(0) @binding(3) var<storage, read> table: array<f32>;
@group(0) @binding(4) var<storage, read_write> dqkv: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

// Reads one pair of one head, rotates it back unless it belongs to v, and writes it.
fn turn(n: u32, head: u32, i: u32, c: f32, s: f32) {
  let half = params.D / 2u;
  let heads = params.H + 2u * params.K;
  var a: f32;
  var b: f32;
  if (head < params.H) {
    let src = (n * params.H + head) * params.D + i;
    a = dq[src];
    b = dq[src + half];
  } else {
    let src = (n * 2u * params.K + head - params.H) * params.D + i;
    a = dkv[src];
    b = dkv[src + half];
  }
  let rotated = head < params.H + params.K;
  let dst = (n * heads + head) * params.D + i;
  dqkv[dst] = select(a, a * c + b * s, rotated);
  dqkv[dst + half] = select(b, b * c - a * s, rotated);
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
  turn(n, head, i, c, s);
  turn(n, min(head + 1u, heads - 1u), i, c, s); // past the end: the last head again
  turn(n, min(head + 2u, heads - 1u), i, c, s);
  turn(n, min(head + 3u, heads - 1u), i, c, s);
}
