/** The measurements of `npm run bench`, and their table. A measurement that was not taken is undefined, never zero. */

import type { AdapterSummary } from '../src/gpu/device.ts';
import type { TableSource } from '../src/model/kernels/tuning.ts';

export interface MatmulResult {
  /** Kind of product. nn: y = x b. tn: the weight gradient y += a^T b. */
  op: 'nn' | 'tn';
  m: number;
  n: number;
  k: number;
  gflops: number;
  shareOfPeak?: number;
}

export interface AttentionResult {
  /** Name of the batch: sequences x length, or a group that shares a prompt. */
  shape: string;
  forwardMs: number;
  backwardMs: number;
}

/** Speed in tokens per second. `shareOfPeak` counts 2 (decode) or 6 (train) operations per parameter and token. */
export interface Rate {
  tokensPerSecond: number;
  gflops: number;
  shareOfPeak?: number;
}

/** Calls and milliseconds by kernel, summed over the measured work. */
type KernelTimes = Record<string, { calls: number; ms: number }>;

export interface TrainResult extends Rate {
  /** Milliseconds on the host to record and submit one step. */
  encodeMs?: number;
  /** Share of all kernels' time that is spent in kernels other than matrix products and attention. */
  shareOutsideProducts?: number;
  /** Calls and milliseconds by kernel, summed over a step. */
  kernels?: KernelTimes;
  /** webgrpo's tokens per second divided by the peer's. */
  ratio?: { tfjs?: number; jaxjs?: number };
}

interface KernelRate extends Rate {
  kernels?: KernelTimes;
}

interface DecodeResult extends KernelRate {
  /** Time by kernel of a short generation, including its prompt. */
  kernels?: KernelTimes;
  /** webgrpo's tokens per second divided by the peer's. */
  ratio?: { ortWebgpu?: number; ortWasm?: number; tfjsDecode?: number };
}

export interface Report {
  adapter: Pick<AdapterSummary, 'vendor' | 'architecture' | 'description' | 'isSoftware'>;
  /** Conditions of the measurement. They show whether slow results come from a busy machine or a slow one. */
  conditions: {
    date: string;
    host: string;
    cores: number;
    loadAverage?: number;
    /** 'off' if shaders did not check buffer indices (`WEBGRPO_ROBUSTNESS`). */
    robustness?: 'off';
    quick: boolean;
    /** Source of the table that selects the tiles of matrix products. Undefined in older results. */
    tiles?: TableSource;
  };
  peak?: {
    gflops: number;
    /** Peak GFLOP/s with 16-bit floats, if the adapter supports shader-f16. */
    gflopsF16?: number;
    /** GB/s of a large copy, counting bytes read and bytes written. */
    copyGbPerS?: number;
    dispatchUs?: number;
    encodeUs?: number;
    mapMs?: number;
  };
  matmul?: MatmulResult[];
  /** Only on request: GFLOP/s of a matrix product with each tile, and the tile that webgrpo chooses. */
  tiles?: { m: number; n: number; k: number; chosen: string; gflops: Record<string, number> }[];
  /** Only on request: milliseconds of a matrix product with packed weights (transposed: x W^T), by method. */
  quantized?: { m: number; n: number; k: number; transposed: boolean; ms: Record<string, number> }[];
  /** Only on request: nanoseconds of single operations for a complete subgroup. */
  micro?: Record<string, number>;
  /** From `npm run bench:startup`: milliseconds until the page can be used, and from Start to the first decode step. */
  startup?: Record<'interactiveMs' | 'firstDecodeMs' | 'loadedMs' | 'loadAverage', number> & {
    fresh: Record<string, number>;
  };
  attention?: AttentionResult[];
  prefill?: Rate;
  /** Decode results, keyed by the number of sequences. */
  decode?: Record<string, DecodeResult>;
  /** Only on request: decoding without and with speculative decoding. The two run in turn, and the best round of each counts. */
  speculative?: {
    setting: string;
    sequences: number;
    plainMs: number;
    guessingMs: number;
    /** Share of the draft tokens that were accepted. `guessed`: draft tokens per sequence and round. */
    acceptance: number;
    guessed: number;
  }[];
  train?: TrainResult;
  scaling?: ({ change: string } & Rate)[];
  /** Only on request: SmolLM2-135M's shape with LoRA. The kernels are of the prompt with one decode step, and of one training step. */
  large?: { parameters: number; decode: Record<string, KernelRate>; train: KernelRate };
  step?: {
    /** 'random' weights never stop a sample early, so the step takes longer than with a checkpoint. */
    weights: 'checkpoint' | 'random';
    /** Seconds by phase. */
    phases: Record<string, number>;
    idleShare?: number;
    generatedTokensPerSecond: number;
  };
  /** Only on request: median times of the same steps with `actor.skipZeroAdvantages` on and off, by share of groups with equal rewards. */
  skip?: ({ equalGroups: number } & Record<'on' | 'off', { updateS: number; stepS: number }>)[];
  /**
   * Only on request, cost of a rubric reward. `rows`: token rows for the criteria of a sample, with a shared prompt and with a complete
   * prompt per reply. `ms`: milliseconds per sample, by number of samples judged together.
   */
  rubric?: { rows: { shared: number; whole: number }; ms: Record<string, number> };
  /** The three pipelines on one device with the same searches; see bench/pipelines.ts. */
  pipelines?: { samples: number } & Record<
    'onPolicy' | 'oneStepOff' | 'fullyAsync',
    {
      /** Seconds to train on `samples` samples. */
      seconds: number;
      /** Share of `seconds` in which training waited for samples. */
      idleShare: number;
      /** Share of the trained tokens that were sampled with older weights. */
      staleShare: number;
    }
  >;
  /** The experience queue in memory: rate at which records of 128 tokens are put, taken and cleared. */
  queue?: { putsPerS: number; bytesPerS: number };
  /** One step of samples that search: each sample awaits its own tools, or all samples wait at a barrier in each turn. */
  asyncTools?: {
    samples: number;
    turns: number;
    /**
     * Milliseconds that searches alone take: with a barrier, the slowest search of each turn; without, the searches of the slowest sample.
     */
    barrierSearchMs: number;
    asyncSearchMs: number;
    barrierMs: number;
    asyncMs: number;
    /** Number of samples of the barrier run and the async run together that did not end as expected. */
    lostSamples: number;
    /** Share of the measured time in which the GPU computed. */
    barrierBusyShare?: number;
    asyncBusyShare?: number;
  };
  /** Only on request: time to send weights to rollout on another device, by bucket size, and to copy them on the same device. */
  stream?: Transfer & {
    byBucketMib: Record<string, Transfer>;
    /** Delta sync without any changed weight: all weights are still read and compared. */
    unchanged: Omit<Transfer, 'overlap'>;
    copy: Omit<Transfer, 'overlap'>;
  };
  /** Steps that record a profile, compared with the same steps without. Costs are medians, as shares of a step's time. */
  profile?: { rounds: number; stepMs: number; events: ProfileCost; withGpuTimes?: ProfileCost };
  prefixSharing?: { speedup: number; rows: number; rowsWithout: number; gradientDifference: number };
}

interface Transfer {
  bytes: number;
  seconds: number;
  /** Share of `seconds` in which one bucket was read while another was written. */
  overlap: number;
}

/** Time that recording a profile adds to a step, as a share of the step's time. */
interface ProfileCost {
  clock: number;
  /** CPU time of the process, which other programs on the machine disturb less than wall time. */
  processor: number;
}

/**
 * Computes every `shareOfPeak`, relative to the best peak of the run. A peak that another program slowed down would make the shares too
 * large.
 */
export function fillShares(report: Report): void {
  const peak = report.peak?.gflops;
  if (!peak) return;
  const rates: { gflops: number; shareOfPeak?: number }[] = [
    ...(report.matmul ?? []),
    ...Object.values(report.decode ?? {}),
    ...(report.scaling ?? []),
    ...(report.large ? [...Object.values(report.large.decode), report.large.train] : []),
    ...(report.prefill ? [report.prefill] : []),
    ...(report.train ? [report.train] : []),
  ];
  for (const rate of rates) rate.shareOfPeak = rate.gflops / peak;
}

/** Returns the report as lines for a terminal. */
export function table(report: Report): string {
  const { adapter, peak, conditions } = report;
  const lines = [
    [
      `${adapter.description || adapter.vendor} (${adapter.vendor} ${adapter.architecture})`,
      conditions.host,
      `${conditions.cores} cores`,
      ...(conditions.loadAverage === undefined ? [] : [`load ${conditions.loadAverage.toFixed(1)}`]),
      ...(conditions.robustness ? [`robustness ${conditions.robustness}`] : []),
      ...(conditions.quick ? ['quick'] : []),
      ...(conditions.tiles === 'timed' ? ['tiles timed'] : []),
    ].join(', '),
  ];
  const row = (name: string, ...cells: string[]) =>
    lines.push(`  ${name.padEnd(34)}${cells.map((c) => c.padStart(14)).join('')}`);
  if (peak) {
    row('peak multiply-add', `${fixed(peak.gflops)} GFLOP/s`);
    if (peak.gflopsF16 !== undefined) row('peak multiply-add, f16', `${fixed(peak.gflopsF16)} GFLOP/s`);
    if (peak.copyGbPerS !== undefined) row('copy', `${fixed(peak.copyGbPerS)} GB/s`);
    if (peak.dispatchUs !== undefined) row('dispatch, run', `${fixed(peak.dispatchUs)} us`);
    if (peak.encodeUs !== undefined) row('dispatch, encode', `${fixed(peak.encodeUs)} us`);
    if (peak.mapMs !== undefined) row('read-back', `${fixed(peak.mapMs)} ms`);
  }
  for (const { op, m, n, k, gflops, shareOfPeak } of report.matmul ?? [])
    row(`matmul ${op} ${m} x ${n} x ${k}`, `${fixed(gflops)} GFLOP/s`, percent(shareOfPeak));
  for (const { m, n, k, chosen, gflops } of report.tiles ?? []) {
    row(`tiles of ${m} x ${n} x ${k}`, 'GFLOP/s');
    for (const [tile, g] of Object.entries(gflops)) row(`  ${tile}`, fixed(g), tile === chosen ? 'used' : '');
  }
  for (const { m, n, k, transposed, ms } of report.quantized ?? []) {
    row(`quantized ${transposed ? 'x W^T' : 'x W'} of ${m} x ${n} x ${k}`, 'ms');
    for (const [way, each] of Object.entries(ms)) row(`  ${way}`, fixed(each));
  }
  for (const [name, ns] of Object.entries(report.micro ?? {})) row(name, `${fixed(ns)} ns`);
  for (const { shape, forwardMs, backwardMs } of report.attention ?? [])
    row(`attention ${shape}`, `${fixed(forwardMs)} ms`, `${fixed(backwardMs)} ms back`);
  if (report.prefill) row('prefill', ...rateCells(report.prefill));
  for (const [sequences, rate] of Object.entries(report.decode ?? {})) {
    row(`decode ${sequences}`, ...rateCells(rate));
    for (const [peer, ratio] of Object.entries(rate.ratio ?? {})) row(`  against ${peer}`, `${fixed(ratio)} x`);
    kernelRows(rate.kernels, row);
  }
  const linear = growsLess(report.decode);
  if (linear !== undefined) row('decode, step less than linear to 16', linear ? 'yes' : 'no');
  for (const { setting, sequences, plainMs, guessingMs, acceptance } of report.speculative ?? [])
    row(
      `guesses, ${setting}, ${sequences} at once`,
      `${fixed(plainMs)} ms without`,
      `${fixed(guessingMs)} ms with`,
      `${fixed(plainMs / guessingMs)} x`,
      `${percent(acceptance)} true`,
    );
  trainRows(report, row);
  for (const { change, ...rate } of report.scaling ?? []) row(`train, ${change}`, ...rateCells(rate));
  if (report.large) {
    const { parameters, decode, train } = report.large;
    const name = `${(parameters / 1e6).toFixed(0)} M parameters`;
    for (const [sequences, each] of Object.entries(decode)) {
      row(`${name}, decode ${sequences}`, ...rateCells(each));
      kernelRows(each.kernels, row);
    }
    row(`${name}, train`, ...rateCells(train));
    kernelRows(train.kernels, row);
  }
  if (report.step) {
    for (const [phase, s] of Object.entries(report.step.phases)) row(`GRPO step, ${phase}`, `${fixed(s)} s`);
    if (report.step.idleShare !== undefined) row('GRPO step, device idle', percent(report.step.idleShare));
  }
  for (const { equalGroups, on, off } of report.skip ?? []) {
    const name = `${percent(equalGroups)} equal groups`;
    const cells = (a: number, b: number) => [
      `${fixed(a)} s whole`,
      `${fixed(b)} s skipping`,
      `${percent(1 - b / a)} less`,
    ];
    row(`update, ${name}`, ...cells(off.updateS, on.updateS));
    row(`step, ${name}`, ...cells(off.stepS, on.stepS));
  }
  if (report.rubric) {
    const { rows, ms } = report.rubric;
    row('rubric, rows a sample', `${rows.shared}, ${rows.whole} unshared`);
    for (const [samples, each] of Object.entries(ms)) row(`rubric, ${samples} at once`, `${fixed(each)} ms a sample`);
  }
  if (report.pipelines) {
    const { samples, ...measured } = report.pipelines;
    for (const [name, { seconds, idleShare, staleShare }] of Object.entries(measured))
      row(
        `${samples} samples, ${name}`,
        `${fixed(seconds)} s`,
        `training idle ${percent(idleShare)}`,
        `stale ${percent(staleShare)}`,
      );
  }
  if (report.queue)
    row('queue', `${fixed(report.queue.putsPerS)} puts/s`, `${fixed(report.queue.bytesPerS / 2 ** 20)} MiB/s`);
  if (report.asyncTools) {
    const { barrierMs, asyncMs, barrierBusyShare, asyncBusyShare, lostSamples } = report.asyncTools;
    const { barrierSearchMs, asyncSearchMs } = report.asyncTools;
    const busy = (share: number | undefined) => `${percent(share)} busy`;
    const searches = (ms: number) => `of it searches ${fixed(ms)} ms`;
    row('step with search, barrier', `${fixed(barrierMs)} ms`, busy(barrierBusyShare), searches(barrierSearchMs));
    row('step with search, asynchronous', `${fixed(asyncMs)} ms`, busy(asyncBusyShare), searches(asyncSearchMs));
    row('step with search, time saved', percent(1 - asyncMs / barrierMs));
    row('step with search, lost samples', `${lostSamples}`);
  }
  if (report.stream) {
    const { byBucketMib, unchanged, copy } = report.stream;
    const cells = ({ bytes, seconds }: Omit<Transfer, 'overlap'>) => [
      `${fixed(bytes / 2 ** 20)} MiB`,
      `${fixed(1000 * seconds)} ms`,
    ];
    for (const [mib, transfer] of Object.entries(byBucketMib).sort(([a], [b]) => Number(a) - Number(b)))
      row(`weights streamed by ${mib} MiB`, ...cells(transfer), `${percent(transfer.overlap)} overlap`);
    row('weights streamed, unchanged', ...cells(unchanged));
    row('weights copied', ...cells(copy));
  }
  if (report.profile) {
    const { events, withGpuTimes } = report.profile;
    const cost = (of: ProfileCost | undefined) => [
      `${percent(of?.clock)} by the clock`,
      `${percent(of?.processor)} of processor time`,
    ];
    row('profile, cost of its events', ...cost(events));
    row('profile, with times of the GPU', ...cost(withGpuTimes));
  }
  if (report.prefixSharing) row('prefix sharing, train step', `${fixed(report.prefixSharing.speedup)} x`);
  return lines.join('\n');
}

/**
 * True if a step of n sequences takes less than twice one of n / 2, for all measured n up to 16; tokens per second then rise with n.
 * Undefined if fewer than two were measured.
 */
function growsLess(decode: Report['decode']): boolean | undefined {
  const rates = Object.entries(decode ?? {})
    .map(([sequences, { tokensPerSecond }]) => ({ sequences: Number(sequences), tokensPerSecond }))
    .filter(({ sequences }) => sequences <= 16)
    .sort((a, b) => a.sequences - b.sequences);
  if (rates.length < 2) return undefined;
  return rates.slice(1).every(({ tokensPerSecond }, i) => tokensPerSecond > rates[i].tokensPerSecond);
}

type Row = (name: string, ...cells: string[]) => void;

function kernelRows(kernels: KernelTimes | undefined, row: Row): void {
  const byTime = Object.entries(kernels ?? {}).sort(([, a], [, b]) => b.ms - a.ms);
  for (const [name, { calls, ms }] of byTime) row(`  ${name}`, `${fixed(ms)} ms`, `${calls} calls`);
}

function trainRows({ train }: Report, row: Row): void {
  if (!train) return;
  row('train step', ...rateCells(train));
  if (train.encodeMs !== undefined) row('train step, encoding', `${fixed(train.encodeMs)} ms`);
  for (const [peer, ratio] of Object.entries(train.ratio ?? {})) row(`train step against ${peer}`, `${fixed(ratio)} x`);
  kernelRows(train.kernels, row);
  if (train.shareOutsideProducts !== undefined) row('train, outside products', percent(train.shareOutsideProducts));
}

const rateCells = ({ tokensPerSecond, shareOfPeak }: Rate) => [`${fixed(tokensPerSecond)} tok/s`, percent(shareOfPeak)];
const fixed = (x: number) => (x >= 100 ? x.toFixed(0) : x.toPrecision(3));
const percent = (x: number | undefined) => (x === undefined ? '' : `${(100 * x).toFixed(1)}%`);

/**
 * Returns a file name from the adapter. lavapipe and SwiftShader have separate vendor names. The name of a browser's report differs from
 * the name of Node's, so that neither replaces the other.
 */
export function fileName({ adapter: { vendor, architecture, description }, conditions: { host } }: Report): string {
  const name = [vendor, architecture].filter(Boolean).join('-') || description;
  const slug = name.toLowerCase().replace(/[^a-z0-9]+/g, '-');
  return `${slug}${host.startsWith('Node') ? '' : '-browser'}.json`;
}
