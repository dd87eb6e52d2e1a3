/** The parts of the benchmark, identical in Node and in a page. */

import type { Gpu } from '../src/gpu/device.ts';
import { describe, InputError } from '../src/errors.ts';
import { applyTuning } from '../src/model/kernels/tuning.ts';
import { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import { benchAsyncTools } from './asyncTools.ts';
import type { Bench, Host } from './bench.ts';
import { benchAllDecode, benchPrefill } from './decode.ts';
import { attentionBatches, benchAttention, benchMatmul, matmulShapes } from './kernels.ts';
import { benchLarge } from './large.ts';
import { benchMicro } from './micro.ts';
import { copyGbPerS, dispatchCost, mapMs, peakGflops, peakGflopsF16 } from '../src/extensions/limits/index.ts';
import { benchPeers } from './peers.ts';
import { benchPipelines, benchQueue } from './pipelines.ts';
import { benchQuantized } from './quantized.ts';
import { fillShares, type Report } from './report.ts';
import { benchRubric } from './rubric.ts';
import { benchSkip } from './skip.ts';
import { benchSpeculative } from './speculative.ts';
import { benchStep } from './step.ts';
import { benchTiles } from './tiles.ts';
import { benchPrefixSharing, benchScaling, benchTrain } from './train.ts';
import { benchStream } from './stream.ts';

/** Parts by name, in the order they run. Each adds its figures to the report. */
const PARTS: Record<string, (bench: Bench) => Promise<void>> = {
  async peak({ gpu, report, effort, rounds }) {
    Object.assign((report.peak ??= { gflops: 0 }), {
      ...(gpu.device.features.has('shader-f16') && { gflopsF16: await peakGflopsF16(gpu, effort) }),
      copyGbPerS: await copyGbPerS(gpu, effort),
      ...(await dispatchCost(gpu, rounds)),
      mapMs: await mapMs(gpu),
    });
  },
  async matmul({ gpu, report, quick, effort }) {
    report.matmul = [];
    for (const shape of matmulShapes(gpu, quick)) report.matmul.push(await benchMatmul(gpu, shape, effort));
  },
  async tiles({ gpu, report, quick }) {
    report.tiles = await benchTiles(gpu, quick ? 1 : 4);
  },
  async quantized({ gpu, report, quick }) {
    report.quantized = await benchQuantized(gpu, quick ? 1 : 4);
  },
  async micro({ gpu, report, effort }) {
    report.micro = await benchMicro(gpu, effort);
  },
  async attention({ gpu, report, quick, effort }) {
    report.attention = [];
    for (const batch of attentionBatches(quick)) report.attention.push(await benchAttention(gpu, batch, effort));
  },
  async prefill({ gpu, report, rounds }) {
    report.prefill = await benchPrefill(gpu, rounds);
  },
  async decode(bench) {
    bench.report.decode = await benchAllDecode(bench);
  },
  async speculative({ gpu, host, report, quick }) {
    report.speculative = await benchSpeculative(gpu, await host.loadStep(quick), quick);
  },
  async train({ gpu, report, quick, rounds, effort }) {
    report.train = await benchTrain(gpu, quick, rounds, effort);
  },
  peers: benchPeers,
  async prefixSharing({ gpu, report, quick, rounds }) {
    report.prefixSharing = await benchPrefixSharing(gpu, quick, rounds);
  },
  async step({ gpu, host, report, quick }) {
    report.step = await benchStep(gpu, await host.loadStep(quick));
  },
  async skip({ gpu, host, report, quick }) {
    report.skip = await benchSkip(gpu, await host.loadStep(quick), quick ? 1 : 5);
  },
  async rubric({ gpu, host, report, quick }) {
    report.rubric = await benchRubric(gpu, await host.loadStep(quick));
  },
  async 'async-tools'({ gpu, host, report, quick }) {
    const { tokenizerJson, tokenizerConfigJson } = (await host.loadStep(quick)).loaded;
    report.asyncTools = await benchAsyncTools(gpu, quick, new ChatTokenizer(tokenizerJson, tokenizerConfigJson));
  },
  async stream({ gpu, report, quick, rounds }) {
    report.stream = await benchStream(gpu, quick, rounds);
  },
  async pipelines({ gpu, host, report, quick }) {
    report.queue = await benchQueue(quick);
    report.pipelines = await benchPipelines(gpu, await host.loadStep(quick), quick);
  },
  async profile({ gpu, host, report, quick }) {
    if (host.profileCost) report.profile = await host.profileCost(gpu, quick);
    else host.say('profile: only in Node, where a run writes it to files');
  },
  async large(bench) {
    bench.report.large = await benchLarge(bench);
  },
  async scaling({ gpu, report, quick }) {
    report.scaling = await benchScaling(gpu, quick);
  },
};

/** Parts that run only if named. They explain why code is built as it is, not how fast a run is. */
const ON_REQUEST = ['micro', 'tiles', 'quantized', 'speculative', 'skip', 'rubric', 'stream', 'pipelines', 'large'];

/** Returns all parts, or those named, separated by commas. Throws InputError. */
export function partNames(only: string | undefined): string[] {
  const all = Object.keys(PARTS);
  if (only === undefined) return all.filter((name) => !ON_REQUEST.includes(name));
  const names = only.split(',');
  const unknown = names.find((name) => !all.includes(name));
  if (unknown === undefined) return names;
  throw new InputError(`--only has "${unknown}"; allowed: ${all.join(', ')}.`);
}

/** Runs the parts. If one fails, for example without a checkpoint, the report has no figures of that part, and `failed` names the part. */
export async function measure(gpu: Gpu, host: Host, names: string[], quick: boolean) {
  const { vendor, architecture, description, isSoftware } = gpu.adapter;
  // A training run would use the stored table of matmul tiles; the benchmark times the tiles every time.
  const tiles = await applyTuning(gpu, 'auto').catch((error: unknown) => {
    host.say(`timing the tiles failed: ${describe(error)}`);
    return undefined;
  });
  const report: Report = {
    adapter: { vendor, architecture, description, isSoftware },
    conditions: { date: new Date().toISOString(), ...host.conditions, quick, ...(tiles && { tiles }) },
  };
  const effort = quick ? { rounds: 2, roundS: 0.03 } : { rounds: 4, roundS: 0.1 };
  const bench: Bench = { gpu, host, report, quick, effort, rounds: quick ? 1 : 3 };
  const failed: string[] = [];
  for (const [i, name] of names.entries()) {
    host.say(`${name} (${i + 1} of ${names.length})`);
    const started = performance.now();
    try {
      // Measures the peak before every part: the best of all measurements is what the adapter can do.
      const gflops = await peakGflops(gpu, effort);
      report.peak = { ...report.peak, gflops: Math.max(gflops, report.peak?.gflops ?? 0) };
      await PARTS[name](bench);
    } catch (error) {
      host.say(`${name} failed: ${describe(error)}`);
      failed.push(name);
    }
    host.say(`${name} took ${((performance.now() - started) / 1000).toFixed(0)} s`);
  }
  fillShares(report);
  return { report, failed };
}
