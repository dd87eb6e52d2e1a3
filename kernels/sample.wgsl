// Samples one token per live sequence and advances its state, so that decode steps can be enqueued without a read-back.
//
// The kept set is {j : z_j >= tau}, z = logits / T, where tau is the tightest of top-k (k-th largest), top-p (smallest
// set that has topP of the mass of top-k, as in vLLM and transformers) and min-p (log minP below the maximum); ties with
// tau are kept. The token is the first j at which the running mass of the kept set passes u * (kept mass), with u from
// pcg4d(key, position). So the sampled token depends on the sequence's own key and position, and on nothing else in the batch.
//
//   logits   [R, V]        row of live sequence i is logitRow[i]
//   stats    [R, 2]        lse at temperature T (1 for greedy), entropy
//   live     [rows, 4]     slot, row of logits, -, -; for entries first .. first + n - 1 a token is sampled
//   control  [slots, 8]    key0, key1, maxNewTokens, 1/T (f32 bits; 0 = greedy), topK, topP (f32), minP (f32), step budget
//   stops    [slots, 4]    stop token ids; 0xffffffff = none
//   state    [slots, 4]    in/out: last token, position of the next token, tokens sampled so far, done flag (1 stop, 2 length)
//   drawn    [slots, CAP, 3]  written: token, log-prob bits, log kept mass bits
//
// Grid      one workgroup per live sequence.
// Numerics  the running mass is summed by WG threads over V / WG neighbouring columns each, then over threads in order. A thread
//           sums blocks of BLOCK columns, then adds the blocks: one running sum over many columns loses the small terms.
// Paper     Jarzynski & Olano 2020, Hash Functions for GPU Rendering (pcg4d); Holtzman et al., arXiv:1904.09751 (top-p).
// Checked   against drawToken() in test/gpu/sampleReference.ts by test/gpu/sample.test.ts.

struct Params {
  first: u32,
  n: u32,
  V: u32,
  cap: u32,  // capacity of a slot's row of drawn, in tokens
}

override WG: u32 = 64u;

const BLOCK = 512u; // as in head_stats.wgsl and head_cdf.wgsl

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> stats: array<f32>;
@group(0) @binding(2) var<storage, read> live: array<u32>;
@group(0) @binding(3) var<storage, read> control: array<u32>;
@group(0) @binding(4) var<storage, read> stops: array<u32>;
@group(0) @binding(5) var<storage, read_write> state: array<u32>;
@group(0) @binding(6) var<storage, read_write> drawn: array<u32>;
@group(0) @binding(7) var<uniform> params: Params;

var<workgroup> partF: array<f32, WG>;
var<workgroup> partU: array<u32, WG>;
var<workgroup> done: u32;

fn pcg4d(seed: vec4u) -> vec4u {
  var v = seed * 1664525u + 1013904223u;
  v.x += v.y * v.w; v.y += v.z * v.x; v.z += v.x * v.y; v.w += v.y * v.z;
  v = v ^ (v >> vec4u(16u));
  v.x += v.y * v.w; v.y += v.z * v.x; v.z += v.x * v.y; v.w += v.y * v.z;
  return v;
}

/** Order-preserving map from float to u32. */
fn ordered(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  return select(b | 0x80000000u, ~b, (b & 0x80000000u) != 0u);
}

/** The columns of a row that may be drawn, and the numbers that turn its logits into masses. */
struct Kept {
  base: u32,
  scale: f32,
  lse: f32,
  tau: u32,
  minP: f32,
  floor: f32, // of z; holds where minP is not 0
}

fn isKept(kept: Kept, logit: f32) -> bool {
  return ordered(logit) >= kept.tau && (kept.minP == 0.0 || logit * kept.scale >= kept.floor);
}

/** Mass of the kept columns first .. end - 1, of at most one block. */
fn massOf(kept: Kept, first: u32, end: u32) -> f32 {
  var mass = 0.0;
  for (var j = first; j < end; j++) {
    let z = logits[kept.base + j];
    if (isKept(kept, z)) { mass += exp(z * kept.scale - kept.lse); }
  }
  return mass;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = params.first + wg.y * grid.x + wg.x;
  if (i >= params.first + params.n) { return; }
  let slot = live[i * 4u];
  let row = live[i * 4u + 1u];
  if (tid == 0u) { done = state[slot * 4u + 3u]; }
  if (workgroupUniformLoad(&done) != 0u) { return; } // already stopped; its state must not change
  let base = row * params.V;
  let invT = bitcast<f32>(control[slot * 8u + 3u]);
  let greedy = invT == 0.0;
  let scale = select(invT, 1.0, greedy);
  let lse = stats[row * 2u];
  let span = (params.V + WG - 1u) / WG;
  let first = min(tid * span, params.V);
  let end = min(first + span, params.V);

  // The largest logit and its index (the lowest index wins a tie).
  var top = 0u;
  var topAt = 0xffffffffu;
  for (var j = first; j < end; j++) {
    let key = ordered(logits[base + j]);
    if (topAt == 0xffffffffu || key > top) { top = key; topAt = j; }
  }
  partU[tid] = top;
  partF[tid] = bitcast<f32>(topAt);
  workgroupBarrier();
  if (tid == 0u) {
    for (var t = 1u; t < WG; t++) {
      if (bitcast<u32>(partF[t]) != 0xffffffffu && partU[t] > partU[0]) { partU[0] = partU[t]; partF[0] = partF[t]; }
    }
  }
  workgroupBarrier();
  top = partU[0];
  topAt = bitcast<u32>(partF[0]);
  workgroupBarrier();

  var token = topAt;
  var logMass = 0.0;
  if (!greedy) {
    // tau by bisection over the ordered bits: first the largest key with enough elements at or above it, then the largest with
    // enough of their mass.
    let topK = control[slot * 8u + 4u];
    let topP = bitcast<f32>(control[slot * 8u + 5u]);
    let minP = bitcast<f32>(control[slot * 8u + 6u]);
    var tau = 0u;
    var massOfTopK = 1.0;
    let byCount = topK > 0u && topK < params.V;
    let byMass = topP < 1.0;
    for (var limit = select(1u, 0u, byCount); limit < select(1u, 2u, byMass); limit++) {
      let goal = topP * massOfTopK;
      let tauOfTopK = tau;
      tau = 0u;
      for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
        let candidate = tau | bit;
        var count = 0u;
        var mass = 0.0;
        for (var chunk = first; chunk < end; chunk += BLOCK) {
          let chunkEnd = min(chunk + BLOCK, end);
          for (var j = chunk; j < chunkEnd; j++) { count += u32(ordered(logits[base + j]) >= candidate); }
          if (byMass) { mass += massOf(Kept(base, scale, lse, candidate, 0.0, 0.0), chunk, chunkEnd); }
        }
        partU[tid] = count;
        partF[tid] = mass;
        workgroupBarrier();
        if (tid == 0u) {
          for (var t = 1u; t < WG; t++) { partU[0] += partU[t]; partF[0] += partF[t]; }
        }
        workgroupBarrier();
        let isEnough = select(partF[0] >= goal, partU[0] >= topK, limit == 0u);
        let reached = partF[0];
        workgroupBarrier();
        if (isEnough) {
          tau = candidate;
          if (limit == 0u) { massOfTopK = reached; }
        }
      }
      tau = max(tau, tauOfTopK);
    }
    let floor = bitcast<f32>(select(~top, top & 0x7fffffffu, (top & 0x80000000u) != 0u)) * scale + log(max(minP, 1e-30));
    let cut = byCount || byMass || minP > 0.0;
    let kept = Kept(base, scale, lse, tau, minP, floor);

    var mass = 0.0;
    for (var chunk = first; chunk < end; chunk += BLOCK) { mass += massOf(kept, chunk, min(chunk + BLOCK, end)); }
    partF[tid] = mass;
    workgroupBarrier();
    if (tid == 0u) {
      var total = 0.0;
      for (var t = 0u; t < WG; t++) { total += partF[t]; }
      let random = pcg4d(vec4u(control[slot * 8u], control[slot * 8u + 1u], state[slot * 4u + 1u], 0x9e3779b9u)).x;
      let goal = f32(random >> 8u) * 0x1p-24 * total; // in [0, total)
      // Find the thread whose span contains the goal, then the column. topAt remains the result if rounding passes the end.
      var before = 0.0;
      var t = 0u;
      while (t < WG - 1u && before + partF[t] <= goal) { before += partF[t]; t++; }
      // Then the block, then the column. A block is summed from 0, as in massOf: next to the mass before it, a small term rounds to 0.
      let last = min(t * span + span, params.V);
      var chunk = min(t * span, params.V);
      while (last > chunk + BLOCK) {
        let ofBlock = massOf(kept, chunk, chunk + BLOCK);
        if (before + ofBlock > goal) { break; }
        before += ofBlock;
        chunk += BLOCK;
      }
      var inBlock = 0.0;
      for (var j = chunk; j < min(chunk + BLOCK, last); j++) {
        let z = logits[base + j];
        let p = exp(z * scale - lse);
        if (isKept(kept, z) && p > 0.0) {
          token = j;
          inBlock += p;
          if (before + inBlock > goal) { break; }
        }
      }
      if (cut) { logMass = log(total); }
    }
  }
  if (tid != 0u) { return; }

  let count = state[slot * 4u + 2u];
  let at = (slot * params.cap + count) * 3u;
  drawn[at] = token;
  drawn[at + 1u] = bitcast<u32>(logits[base + token] * scale - lse);
  drawn[at + 2u] = bitcast<u32>(logMass);
  state[slot * 4u] = token;
  state[slot * 4u + 1u] += 1u;
  state[slot * 4u + 2u] = count + 1u;
  var stopped = false;
  for (var s = 0u; s < 4u; s++) { stopped = stopped || stops[slot * 4u + s] == token; }
  state[slot * 4u + 3u] = select(select(0u, 2u, count + 1u >= control[slot * 8u + 2u]), 1u, stopped);
}
