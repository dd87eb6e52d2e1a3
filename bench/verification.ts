/**
 * `node scripts/bench-verification.mjs`: verifies honest and forged samples of the default recipe. One process writes them on one adapter,
 * another verifies them on another adapter.
 *   --write FILE   generates samples, honest and forged    --read FILE   verifies them, prints the table as JSON
 *   --samples N    honest ones    --forgeries N    of each kind
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { readArgs } from '../src/cli/args.ts';
import type { TrainConfig } from '../src/grpo/config/types.ts';
import { installDawn } from '../src/cli/dawn.ts';
import { InputError } from '../src/errors.ts';
import { Gpu } from '../src/gpu/device.ts';
import { applyTuning } from '../src/model/kernels/tuning.ts';
import { generateOptions } from '../src/grpo/generate/options.ts';
import { decodeSample, encodeSample } from '../src/grpo/generate/sampleCodec.ts';
import { generateSamples } from '../src/grpo/generate/samples.ts';
import type { PromptGroup } from '../src/grpo/pipeline/types.ts';
import { drawBounds, type SampleClaim, SampleVerifier, type Verdict } from '../src/extensions/rooms/index.ts';
import { loadModel } from '../src/model/weights/load.ts';
import { modelTokenizer } from '../src/model/tokenizer/modelTokenizer.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../src/rollout/server/server.ts';
import type { TurnEngine } from '../src/rollout/types.ts';
import { keyedRng } from '../src/tasks/random.ts';
import { engineSizes } from '../src/workers/engineSpec.ts';
import { type ClaimedSample, FORGERIES, ForgingEngine } from './forgeries.ts';
import { loadStep } from './nodeStep.ts';

const STEP = 1;
/** Number of problems that are sampled together, as in a step. */
const GROUPS = 16;
const HONEST = 'honest';
/** Forgeries that need a model to be created: how a token is replaced, or the noise added to the worker's weights. */
const GENERATED: Record<string, { how?: 'redrawn' | 'neighbour'; weightNoise?: number }> = {
  'one token drawn by another key, the rest honest after it': { how: 'redrawn' },
  'one token swapped for its neighbour in the distribution, the rest honest after it': { how: 'neighbour' },
  'other weights, each by 3e-4': { weightNoise: 3e-4 },
  'other weights, each by 3e-3': { weightNoise: 3e-3 },
};

const say = (line: string) => process.stderr.write(`bench: ${line}\n`);

interface Kept {
  kind: string;
  claim: SampleClaim;
  sample: ReturnType<typeof encodeSample>;
  /** [T] cumulative probability before each sampled token, computed on the worker's adapter. */
  below?: (number | null)[];
}

async function setUp() {
  const gpu = await Gpu.create();
  await applyTuning(gpu, 'auto');
  const { config, task, loaded } = await loadStep(false);
  const tokenizer = modelTokenizer(loaded);
  const sizes = engineSizes(config);
  const model = await loadModel(gpu, loaded.config, sizes.maxPositions, loaded.weights);
  const engine = new WgslEngine(gpu, model, sizes.maxTokenLen);
  return { gpu, config, task, tokenizer, sizes, model, engine, vocabSize: loaded.config.vocabSize };
}

async function write(file: string, honest: number, forgeries: number): Promise<void> {
  const { gpu, config, task, tokenizer, sizes, model, engine, vocabSize } = await setUp();
  const { n } = config.rollout;
  const claimed = async (rollout: TurnEngine, count: number): Promise<ClaimedSample[]> => {
    const all: ClaimedSample[] = [];
    for (let first = 0; all.length < count; first += GROUPS) {
      const options = generateOptions({ config, engine: { rollout, tokenizer }, task }, STEP, n);
      const problems = await Promise.all(
        Array.from({ length: GROUPS }, async (_, p) => task.train(first + p, config.seed)),
      );
      const { samples } = await generateSamples(problems, { ...options, firstGroup: first, globalStep: STEP });
      samples.forEach((sample, i) => {
        const number = first + Math.floor(i / n);
        all.push({ sample, claim: { uid: `g${number}`, number, step: STEP, s: i % n, version: 0 } });
      });
    }
    return all.slice(0, count);
  };
  const rolloutOf = () => new WgslRolloutEngine(gpu, model, sizes.rollout, {});
  const lines: Kept[] = [];
  const keep = (kind: string, samples: readonly ClaimedSample[]) => {
    for (const { sample, claim } of samples) lines.push({ kind, claim, sample: encodeSample(sample) });
    say(`${kind}: ${samples.length} samples`);
  };
  const rollout = rolloutOf();
  const pool = await claimed(rollout, Math.max(honest, forgeries));
  keep(HONEST, pool.slice(0, honest));
  for (const [i, below] of (await belowOf(engine, config, pool.slice(0, honest))).entries())
    lines[i].below = [...below];
  for (const [kind, { forge }] of Object.entries(FORGERIES)) {
    const forged: ClaimedSample[] = [];
    for (let i = 0; forged.length < forgeries && i < 20 * pool.length; i++) {
      const honest = pool[i % pool.length];
      const group = pool.filter(({ claim }) => claim.uid === honest.claim.uid);
      forged.push(...[forge(honest, keyedRng(kind, i), group)].filter((made) => made !== undefined));
    }
    keep(kind, forged);
  }
  const weights = await engine.exportWeights();
  for (const [kind, { how, weightNoise }] of Object.entries(GENERATED)) {
    if (forgeries === 0) break;
    if (weightNoise !== undefined) {
      const rng = keyedRng('weights');
      const moved = [...weights].map(([name, { shape, data }]) => {
        return [name, { shape, data: data.map((w) => w + (rng.int(0, 1) * 2 - 1) * weightNoise) }] as const;
      });
      await engine.importWeights(new Map(moved));
      await rollout.resetCache(0);
    }
    keep(kind, await claimed(how ? new ForgingEngine(rollout, how, vocabSize) : rollout, forgeries));
  }
  writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
}

/** Returns [samples][T] cumulative probabilities before each sampled token; NaN for tokens that were not sampled. */
async function belowOf(engine: WgslEngine, config: TrainConfig, samples: readonly ClaimedSample[]) {
  const drawn = samples.map(({ sample: { trajectory }, claim: { number, version } }) => {
    return { group: number, key: [0, 0] as const, version, trajectory };
  });
  const sizes = { temperature: config.rollout.temperature, maxTokenLen: config.actor.ppoMaxTokenLenPerGpu };
  return (await drawBounds(drawn, () => engine, sizes)).map(({ below }) => below);
}

interface Row {
  kind: string;
  samples: number;
  tokens: number;
  accepted: number;
  /** Near tokens in the accepted samples: tokens that differ from the expected ones by no more than the tolerance. */
  nearTokens: number;
  wrongDraws: number;
  wrongLogProbs: number;
  drawDistance: number;
  logProbDistance: number;
  /** Distance between the cumulative probabilities before a token on the two adapters; honest samples only. */
  massDistance?: number;
  reasons: Record<string, number>;
}

async function read(file: string): Promise<{ adapter: string; seconds: number; rows: Row[] }> {
  const { gpu, config, task, tokenizer, engine, vocabSize } = await setUp();
  const lines = readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Kept);
  const groups = new Map<string, PromptGroup>();
  for (const number of new Set(lines.map(({ claim }) => claim.number)))
    groups.set(`g${number}`, {
      number,
      problem: await task.train(number, config.seed),
      step: STEP,
    });
  const started = performance.now();
  const rows: Row[] = [];
  for (const kind of new Set(lines.map((line) => line.kind))) {
    const verifier = () =>
      new SampleVerifier({
        config, task, tokenizer, vocabSize,
        groupOf: (uid) => groups.get(uid),
        weightsOf: (version) => (version === 0 ? engine : undefined),
      }); // oxfmt-ignore
    const verdicts: { verdict: Verdict; tokens: number }[] = [];
    const own = lines.filter((line) => line.kind === kind);
    for (let at = 0; at < own.length; at += 128) {
      const judge = verifier(); // a separate verifier, because some kinds forge one sample several times
      const jobs = own.slice(at, at + 128).map(async ({ claim, sample: encoded }) => {
        const sample = decodeSample(encoded);
        const tokens = sample.trajectory.mask.reduce((sum, m) => sum + m, 0);
        return { verdict: await judge.verify(sample, claim), tokens };
      });
      verdicts.push(...(await Promise.all(jobs)));
    }
    rows.push(rowOf(kind, verdicts));
    if (kind === HONEST) {
      const claimed = own.map(({ sample, claim }) => ({ sample: decodeSample(sample), claim }));
      const here = await belowOf(engine, config, claimed);
      const distances = own.flatMap(({ below = [] }, i) =>
        below.map((mass, t) => (mass === null ? 0 : Math.abs(mass - here[i][t]))),
      );
      rows[0].massDistance = distances.reduce((a, b) => Math.max(a, b), 0);
    }
    say(JSON.stringify(rows.at(-1)));
  }
  const { description, vendor, architecture } = gpu.adapter;
  return { adapter: description || `${vendor} ${architecture}`, seconds: (performance.now() - started) / 1000, rows };
}

function rowOf(kind: string, verdicts: readonly { verdict: Verdict; tokens: number }[]): Row {
  const sum = (of: (v: Verdict) => number) => verdicts.reduce((total, { verdict }) => total + of(verdict), 0);
  const largest = (of: (v: Verdict) => number) =>
    verdicts.reduce((most, { verdict }) => Math.max(most, of(verdict)), 0);
  const reasons: Record<string, number> = {};
  for (const { verdict } of verdicts)
    if (!verdict.accepted) reasons[verdict.reason] = (reasons[verdict.reason] ?? 0) + 1;
  return {
    kind,
    samples: verdicts.length,
    tokens: verdicts.reduce((total, { tokens }) => total + tokens, 0),
    accepted: sum((v) => (v.accepted ? 1 : 0)),
    nearTokens: sum((v) => (v.accepted ? v.nearTokens : 0)),
    wrongDraws: sum((v) => v.check?.wrongDraws ?? 0),
    wrongLogProbs: sum((v) => v.check?.wrongLogProbs ?? 0),
    drawDistance: largest((v) => v.check?.drawDistance ?? 0),
    logProbDistance: largest((v) => v.check?.logProbDistance ?? 0),
    reasons,
  };
}

const COUNT = { value: 'N', help: 'a count' };
const FLAGS = {
  write: { value: 'FILE', help: 'generate into this file' },
  read: { value: 'FILE', help: 'verify what is in it' },
  samples: COUNT,
  forgeries: COUNT,
};

try {
  const { flags } = readArgs(process.argv.slice(2), FLAGS);
  await installDawn();
  const [file, count] = [flags['write'], (name: string) => Number(flags[name] ?? 0)];
  if (typeof file === 'string') await write(file, count('samples'), count('forgeries'));
  const from = flags['read'];
  if (typeof from === 'string') process.stdout.write(`${JSON.stringify(await read(from))}\n`);
  process.exit(0);
} catch (error) {
  if (!(error instanceof InputError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exit(2);
}
