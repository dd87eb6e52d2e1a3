/** The benchmark in a page. scripts/bench-browser.mjs opens it, calls `bench.run` or `bench.peer`, and stores the result. */

import { fetchConfig } from '../../demo/engine/configs.ts';
import { fetchShipped } from '../../demo/engine/files.ts';
import '../../src/modelParts.ts';
import '../../src/trainerParts.ts';
import { Gpu } from '../../src/gpu/device.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import type { Host } from '../bench.ts';
import { measure, partNames } from '../parts.ts';
import { type PeerHost, runPeer } from '../peers/run.ts';
import type { Ort } from '../peers/ort.ts';
import type { PeerName, PeerResults } from '../peers/types.ts';
import { fileName, table } from '../report.ts';
import { QUICK_STEP, type StepInputs } from '../step.ts';

const CONFIG = 'gsm8k-tool';

/** Globals of the page. scripts/bench-browser.mjs defines the first two and calls `bench`. */
declare global {
  var hostSay: (line: string) => Promise<void>;
  var hostAskPeer: (name: PeerName, quick: boolean) => Promise<unknown>;
  var bench: { run: typeof run; peer: typeof peer };
}

const host: Host = {
  say: (line) => void hostSay(line),
  askPeer: async <N extends PeerName>(name: N, quick: boolean) => (await hostAskPeer(name, quick)) as PeerResults[N],
  loadStep,
  conditions: {
    host: /Chrom\w+\/\d+/.exec(navigator.userAgent)?.[0] ?? navigator.userAgent,
    cores: navigator.hardwareConcurrency,
  },
};

async function run(only: string | undefined, quick: boolean) {
  const { report, failed } = await measure(await Gpu.create(), host, partNames(only), quick);
  return { report, failed, table: table(report), file: fileName(report) };
}

const peer = (name: PeerName, quick: boolean) => runPeer(name, quick, { loadOrt, say: host.say });

async function loadStep(quick: boolean): Promise<StepInputs> {
  const options = { source: CONFIG, overrides: quick ? QUICK_STEP : [] };
  const config = parseTrainConfig(await fetchConfig(CONFIG), options);
  return { config, task: gsm8kToolTask(), loaded: await fetchShipped(config.model.path), weights: 'checkpoint' };
}

/** Loads ONNX Runtime from its own files, which the script serves next to the page. A bundle would only copy 27 MB of wasm. */
const loadOrt: PeerHost['loadOrt'] = async (provider) => {
  const folder = new URL('/ort/', location.href).href;
  const ort = (await import(/* @vite-ignore */ `${folder}ort.${provider}.min.mjs`)) as Ort;
  ort.env.wasm.wasmPaths = folder;
  ort.env.wasm.numThreads = navigator.hardwareConcurrency;
  return ort;
};

globalThis.bench = { run, peer };
