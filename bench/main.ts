/**
 * `npm run bench`: measures this adapter and this code in one run and prints a table. A complete run is stored in
 * bench/results/<adapter>.json.
 *   --only peak,matmul   parts to run    --quick   smaller and shorter    --json   prints the object instead of the table
 */

import { spawn } from 'node:child_process';
import { availableParallelism, loadavg } from 'node:os';
import '../src/engineParts.ts';
import '../src/trainerParts.ts';
import { type FlagSpec, readArgs } from '../src/cli/args.ts';
import { installDawn, robustness } from '../src/cli/dawn.ts';
import { Gpu } from '../src/gpu/device.ts';
import { InputError } from '../src/errors.ts';
import { keep } from './keep.ts';
import { loadStep } from './nodeStep.ts';
import type { Host } from './bench.ts';
import { measure, partNames } from './parts.ts';
import type { Ort } from './peers/ort.ts';
import { runPeer } from './peers/run.ts';
import { PEERS, type PeerName, type PeerResults } from './peers/types.ts';
import { benchProfile } from './profileCost.ts';
import { table } from './report.ts';

const FLAGS: Record<string, FlagSpec> = {
  only: { value: 'parts', help: 'parts to run, comma-separated' },
  quick: { help: 'smaller and shorter' },
  json: { help: 'print the object' },
  peer: { value: 'name', help: 'internal: run as the process of a peer' },
};

/** Milliseconds after which a peer's process is killed, so that a complete benchmark takes at most half an hour on a busy machine. */
const PEER_LIMIT_MS = 300_000;

const say = (line: string) => process.stderr.write(`bench: ${line}\n`);

const host: Host = {
  say,
  askPeer,
  loadStep,
  profileCost: async (gpu, quick) => benchProfile(gpu, await loadStep(quick), quick ? 2 : 6),
  conditions: { host: `Node ${process.version}`, cores: availableParallelism(), loadAverage: loadavg()[0] },
};

async function main(args: string[]): Promise<void> {
  const { flags } = readArgs(args, FLAGS);
  const quick = flags['quick'] === true;
  const [only, peer] = [flags['only'], flags['peer']].map((flag) => (typeof flag === 'string' ? flag : undefined));
  const names = partNames(only);
  await installDawn();
  if (peer !== undefined) {
    process.stdout.write(`\n${JSON.stringify(await runPeer(peerName(peer), quick, { loadOrt, say }))}\n`);
    return;
  }
  const conditions = { ...host.conditions, ...(robustness() === 'off' && { robustness: 'off' as const }) };
  const { report, failed } = await measure(await Gpu.create(), { ...host, conditions }, names, quick);
  if (quick || only !== undefined || robustness() === 'off')
    say('not written to bench/results, where only whole runs with robustness are kept');
  else say(`wrote ${keep(report)}`);
  process.stdout.write(`${flags['json'] === true ? JSON.stringify(report, null, 2) : table(report)}\n`);
  if (failed.length > 0) {
    say(`failed: ${failed.join(', ')}`);
    process.exitCode = 1;
  }
}

function peerName(name: string): PeerName {
  const known = PEERS.find((peer) => peer === name);
  if (known) return known;
  throw new InputError(`--peer is "${name}"; allowed: ${PEERS.join(', ')}.`);
}

/** Loads ONNX Runtime Web for its wasm provider, which finds its files automatically. The WebGPU provider needs a browser. */
async function loadOrt(): Promise<Ort> {
  const ort = await import('onnxruntime-web');
  ort.env.wasm.numThreads = availableParallelism();
  return ort;
}

async function askPeer<N extends PeerName>(name: N, quick: boolean): Promise<PeerResults[N]> {
  // ONNX Runtime's WebGPU provider needs a browser, which bench-browser.mjs finds.
  const program = name === 'ortWebgpu' ? 'scripts/bench-browser.mjs' : process.argv[1];
  const child = spawn(process.execPath, [program, '--peer', name, ...(quick ? ['--quick'] : [])], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [out, errors, late] = ['', '', false];
  child.stdout.on('data', (part: Buffer) => (out += part.toString()));
  child.stderr.on('data', (part: Buffer) => (errors += part.toString()));
  const timer = setTimeout(() => (late = child.kill()), PEER_LIMIT_MS);
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  clearTimeout(timer);
  const line = out.trim().split('\n').at(-1) ?? '';
  if (code === 0 && line.startsWith('{')) return JSON.parse(line) as PeerResults[N];
  throw new Error(late ? `ended after ${PEER_LIMIT_MS / 1000} s` : `exit code ${code}: ${errors.slice(-2000)}`);
}

try {
  await main(process.argv.slice(2));
  process.exit(process.exitCode ?? 0);
} catch (error) {
  if (!(error instanceof InputError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exit(2);
}
