/**
 * `npm run bench`: measures this adapter and this code in one run, prints a table; a whole run is kept in
 * bench/results/<adapter>.json.
 *   --only peak,matmul   parts to run    --quick   smaller and shorter    --json   prints the object instead of the table
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { availableParallelism, loadavg } from 'node:os';
import { type FlagSpec, readArgs } from '../src/cli/args.ts';
import { installDawn } from '../src/cli/dawn.ts';
import { Gpu } from '../src/gpu/device.ts';
import { InputError } from '../src/model/errors.ts';
import { benchAsyncTools } from './asyncTools.ts';
import { benchAllDecode, benchPrefill } from './decode.ts';
import { attentionBatches, benchAttention, benchMatmul, matmulShapes } from './kernels.ts';
import { copyGbPerS, dispatchCost, mapMs, peakGflops } from './peaks.ts';
import { askPeer, ratioTo, runPeer } from './peers.ts';
import { fillShares, type Report, table } from './report.ts';
import { benchStep } from './step.ts';
import { benchPrefixSharing, benchScaling, benchTrain, headlineTrainer } from './train.ts';
import type { Effort } from './timing.ts';

const FLAGS: Record<string, FlagSpec> = {
  only: { value: 'parts', help: 'parts to run, with commas between' },
  quick: { help: 'smaller and shorter' },
  json: { help: 'print the object' },
  peer: { value: 'name', help: 'internal: run as the process of a peer' },
};

interface Bench {
  gpu: Gpu;
  report: Report;
  quick: boolean;
  effort: Effort;
  rounds: number;
}

/** Parts by name, in the order they run. Each fills in its share of the report. */
const PARTS: Record<string, (bench: Bench) => Promise<void>> = {
  async peak({ gpu, report, effort, rounds }) {
    Object.assign((report.peak ??= { gflops: 0 }), {
      copyGbPerS: await copyGbPerS(gpu, effort),
      ...(await dispatchCost(gpu, rounds)),
      mapMs: await mapMs(gpu),
    });
  },
  async matmul({ gpu, report, quick, effort }) {
    report.matmul = [];
    for (const shape of matmulShapes(gpu, quick)) report.matmul.push(await benchMatmul(gpu, shape, effort));
  },
  async attention({ gpu, report, quick, effort }) {
    report.attention = [];
    for (const batch of attentionBatches(quick)) report.attention.push(await benchAttention(gpu, batch, effort));
  },
  async prefill({ gpu, report, rounds }) {
    report.prefill = await benchPrefill(gpu, rounds);
  },
  async decode({ gpu, report, quick, rounds }) {
    report.decode = await benchAllDecode(gpu, quick, rounds);
  },
  async train({ gpu, report, quick, rounds, effort }) {
    report.train = await benchTrain(gpu, quick, rounds, effort);
  },
  async peers({ gpu, report, quick, rounds }) {
    const ours = await headlineTrainer(gpu, quick);
    const before = await ours.rate(rounds);
    say('tfjs trains the same batch; on a software adapter that takes minutes');
    const tfjs = await askPeer('tfjs', quick);
    // Ours stands on both sides of the peer's turn, so that a machine that got slower or faster is not in the ratio.
    const after = await ours.rate(rounds);
    const best = before.tokensPerSecond > after.tokensPerSecond ? before : after;
    const ratio = { tfjs: ratioTo('tfjs', tfjs, best.tokensPerSecond, ours.logProbs) };
    report.train = { ...(report.train ?? best), ratio };
  },
  async prefixSharing({ gpu, report, quick, rounds }) {
    report.prefixSharing = await benchPrefixSharing(gpu, quick, rounds);
  },
  async step({ gpu, report, quick }) {
    report.step = await benchStep(gpu, quick);
  },
  async 'async-tools'({ gpu, report, quick }) {
    report.asyncTools = await benchAsyncTools(gpu, quick);
  },
  async scaling({ gpu, report, quick }) {
    report.scaling = await benchScaling(gpu, quick);
  },
};

async function main(args: string[]): Promise<void> {
  const { flags } = readArgs(args, FLAGS);
  const quick = flags['quick'] === true;
  await installDawn();
  if (flags['peer'] !== undefined) {
    process.stdout.write(`\n${JSON.stringify(await runPeer(quick))}\n`);
    return;
  }
  const names = partNames(flags['only']);
  const gpu = await Gpu.create();
  const report = await measure(gpu, names, quick);
  if (quick || flags['only'] !== undefined) say('not written to bench/results, where only whole runs are kept');
  else keep(report);
  process.stdout.write(`${flags['json'] === true ? JSON.stringify(report, null, 2) : table(report)}\n`);
}

async function measure(gpu: Gpu, names: string[], quick: boolean): Promise<Report> {
  const { vendor, architecture, description, isSoftware } = gpu.adapter;
  const report: Report = {
    adapter: { vendor, architecture, description, isSoftware },
    conditions: {
      date: new Date().toISOString(),
      node: process.version,
      cores: availableParallelism(),
      loadAverage: loadavg()[0],
      quick,
    },
  };
  const effort = quick ? { rounds: 2, roundS: 0.03 } : { rounds: 4, roundS: 0.1 };
  const bench: Bench = { gpu, report, quick, effort, rounds: quick ? 1 : 3 };
  for (const name of names) {
    say(name);
    // The peak before every part: the best of all is what the adapter can do.
    const gflops = await peakGflops(gpu, effort);
    report.peak = { ...report.peak, gflops: Math.max(gflops, report.peak?.gflops ?? 0) };
    try {
      await PARTS[name](bench);
    } catch (error) {
      // One part that cannot run (no checkpoint, a peer that fails) leaves its figures out, and says so.
      say(`${name} failed: ${error instanceof Error ? error.message : String(error)}`);
      process.exitCode = 1;
    }
  }
  fillShares(report);
  return report;
}

function keep(report: Report): void {
  const file = `bench/results/${slug(report)}.json`;
  mkdirSync('bench/results', { recursive: true });
  writeFileSync(file, `${JSON.stringify(report, null, 2)}\n`);
  say(`wrote ${file}`);
}

function partNames(only: string | boolean | undefined): string[] {
  const all = Object.keys(PARTS);
  if (typeof only !== 'string') return all;
  const names = only.split(',');
  const unknown = names.find((name) => !all.includes(name));
  if (unknown === undefined) return names;
  throw new InputError(`--only has "${unknown}"; allowed: ${all.join(', ')}.`);
}

/** File name of the adapter; lavapipe and SwiftShader have one vendor name each. */
function slug({ adapter: { vendor, architecture, description } }: Report): string {
  const name = [vendor, architecture].filter(Boolean).join('-') || description;
  return name.toLowerCase().replace(/[^a-z0-9]+/g, '-');
}

const say = (line: string) => process.stderr.write(`bench: ${line}\n`);

try {
  await main(process.argv.slice(2));
  process.exit(process.exitCode ?? 0);
} catch (error) {
  if (!(error instanceof InputError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exit(2);
}
