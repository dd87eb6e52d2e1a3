/**
 * Runs a training loop that a reader wrote: the loop's text gets the library, an engine and a callback. Counts what the loop does. The
 * worker of the page (loopWorker.ts), the tests and scripts/record-run.mjs use it.
 */

import type * as library from '../../../src/index.ts';
import type * as learners from '../../../src/extensions/learner/index.ts';
import type * as tasks from '../../../src/tasks.ts';
import { describe, InputError } from '../../../src/errors.ts';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import type { Metrics } from '../../../src/grpo/metrics.ts';
import type { TrainerEngine } from '../../../src/grpo/types.ts';
import type { CheckpointWithTokenizer } from '../../../src/model/checkpoint/checkpoint.ts';
import type { TensorMap } from '../../../src/model/engine.ts';
import type { Problem } from '../../../src/tasks/task.ts';

type SampledRow = learners.SampledRow;

/** A step as a reader's loop reports it to `show`. */
export interface ShownStep {
  step: number;
  problems: readonly Problem[];
  tries: readonly Pick<SampledRow, 'text' | 'group'>[];
  rewards: readonly number[];
  metrics: Metrics;
  gradNorm: number;
}

/** Options of the reader's loop, which has a default for each. */
export interface LoopOptions {
  lr?: number | undefined;
  seed?: number | undefined;
  steps?: number | undefined;
  /** Batches that wait before they are trained on, and the loss: lesson 5. */
  delay?: number | undefined;
  loss?: string | undefined;
}

/** Type of the function `train` that a loop exports. */
export type Train = (given: LoopOptions & { engine: TrainerEngine; show: (step: ShownStep) => void }) => Promise<void>;

/** Seconds of a step: drawing tries, gradient, optimizer, and everything else, such as the reader's own code. */
export interface Seconds {
  draw: number;
  gradient: number;
  optimizer: number;
  other: number;
}

/** Log-probs of the trained tokens of a batch, by try: when they were drawn, and under the weights that are trained. */
export interface LogProbs {
  drawn: number[][];
  now: number[][];
}

/** A step in the form in which the page shows it. */
export interface LoopStep {
  step: number;
  /** Mean over the tries. */
  reward: number;
  /** Undefined, and so is `entropy`, if all groups were silent: no group had different rewards. */
  loss: number | undefined;
  entropy: number | undefined;
  gradNorm: number;
  /** Share of the tokens that the loss clipped; undefined for a loss without a clip. */
  clipped: number | undefined;
  /** Log-probs of the batch that the step trained on. */
  logProbs: LogProbs;
  seconds: Seconds;
  /** The first try at each problem of the step. */
  tries: { problem: string; answer: string; text: string; reward: number }[];
}

/** Counts of what a loop did, for the check of an exercise. */
export interface LoopFacts {
  /** Calls of forwardBackward. */
  gradients: number;
  /** Steps of the optimizer. */
  updates: number;
  /** Rows of all gradients. */
  rows: number;
  /** The advantages of each group are summed in each gradient. The largest absolute sum. */
  largestSum: number;
  /** Smallest advantage. */
  lowest: number;
  /** Pairs of tries of a group whose better one, by the shown rewards, had the smaller advantage. */
  upsideDown: number;
  /** Largest absolute change of a weight. */
  moved: number;
}

/** The three entries of the package that a loop can import. */
export interface LoopLibrary {
  webgrpo: typeof library;
  'webgrpo/learner': typeof learners;
  'webgrpo/tasks': typeof tasks;
}

interface LoopRun {
  text: string;
  library: LoopLibrary;
  /** Returns an address from which `import` can load the text of a script. */
  addressOf: (text: string) => string;
  /** Opens the engine of a loop's config. Called after the loop's text was parsed. */
  openEngine: (config: TrainConfig) => Promise<TrainerEngine>;
  options?: LoopOptions;
  onStep: (step: LoopStep) => void;
  /** Maximum number of updates, after which the loop is ended. */
  mostUpdates?: number | undefined;
}

/** Thrown into a loop that made too many updates. */
class TooManyUpdates extends Error {}

/** An error in the text of the reader's loop. */
export class LoopError extends Error {
  override name = 'LoopError';
  /** Line of the error in the text, from 1; undefined if the browser does not report a line. */
  readonly line: number | undefined;

  constructor(message: string, line?: number) {
    super(message);
    this.line = line;
  }
}

/** Runs a loop to its end, and returns what it did. Throws LoopError for an error of the text. */
export async function runLoop({
  text,
  addressOf,
  openEngine,
  options = {},
  onStep,
  ...given
}: LoopRun): Promise<LoopFacts> {
  const watch = new Watch(given.library['webgrpo/learner'].Learner, given.mostUpdates);
  const entries = {
    ...given.library,
    'webgrpo/learner': { ...given.library['webgrpo/learner'], Learner: watch.Learner },
  };
  const address = addressOf(withAddresses(text, entries, addressOf));
  try {
    const loop = (await import(/* @vite-ignore */ address)) as { config?: TrainConfig; train?: Train };
    if (typeof loop.train !== 'function' || typeof loop.config !== 'object')
      throw new LoopError(
        'The text has no "export const config" or no "export async function train". Press Reset to get them back.',
      );
    const engine = await openEngine(loop.config);
    const before = await engine.model.exportWeights();
    try {
      await loop.train({ engine, ...options, show: (step) => onStep(watch.stepOf(step)) });
    } catch (error) {
      if (!(error instanceof TooManyUpdates)) throw error;
    }
    return { ...watch.facts, moved: largestChange(before, await engine.model.exportWeights()) };
  } catch (error) {
    throw error instanceof LoopError ? error : loopError(error, address);
  }
}

/**
 * Number of runs so far, written into the text. Otherwise Node would load a module with the same text only once, and the next run would get
 * the old Learner.
 */
let runs = 0;

/** Replaces the package's names in import statements by addresses of modules with the same exports. */
function withAddresses(text: string, entries: LoopLibrary, addressOf: (text: string) => string): string {
  Object.assign(globalThis, { lessonLibrary: entries });
  const run = runs++;
  return text.replaceAll(/(from\s*)(['"])(webgrpo(?:\/\w+)?)\2/g, (all, from: string, _, name: string) => {
    if (!Object.hasOwn(entries, name)) return all;
    const names = Object.keys(entries[name as keyof LoopLibrary]);
    const module = `export const { ${names.join(', ')} } = globalThis.lessonLibrary['${name}']; // run ${run}`;
    return from + JSON.stringify(addressOf(module));
  });
}

/** Counts and times what a loop does with its learner. */
class Watch {
  readonly Learner: typeof learners.Learner;
  readonly facts: LoopFacts = {
    ...{ gradients: 0, updates: 0, rows: 0, largestSum: 0, lowest: 0, upsideDown: 0, moved: 0 },
  };
  #rows: readonly learners.TrainRow[] = [];
  #seconds: Seconds = { draw: 0, gradient: 0, optimizer: 0, other: 0 };
  #since = performance.now();
  #logProbs: LogProbs = { drawn: [], now: [] };

  constructor(Learner: typeof learners.Learner, mostUpdates = Infinity) {
    const { facts } = this;
    const timed = <T>(part: keyof Seconds, work: Promise<T>) => this.#timed(part, work);
    const keep = (rows: readonly learners.TrainRow[], logProbs: LogProbs) =>
      ([this.#rows, this.#logProbs] = [rows, logProbs]);
    this.Learner = class extends Learner {
      override sample(...given: Parameters<learners.Learner['sample']>) {
        return timed('draw', super.sample(...given));
      }

      override async forwardBackward(...given: Parameters<learners.Learner['forwardBackward']>) {
        facts.gradients++;
        facts.rows += given[0].length;
        facts.largestSum = Math.max(facts.largestSum, ...groupSums(given[0]).map(Math.abs));
        facts.lowest = Math.min(facts.lowest, ...given[0].map(advantageOf));
        const done = await timed('gradient', super.forwardBackward(...given));
        keep(given[0], trainedLogProbs(given[0], done.logProbs));
        return done;
      }

      override async optimStep(...given: Parameters<learners.Learner['optimStep']>) {
        const done = await timed('optimizer', super.optimStep(...given));
        if (++facts.updates > mostUpdates) throw new TooManyUpdates();
        return done;
      }
    };
  }

  async #timed<T>(part: keyof Seconds, work: Promise<T>): Promise<T> {
    const start = performance.now();
    const done = await work;
    this.#seconds[part] += (performance.now() - start) / 1000;
    return done;
  }

  stepOf({ step, problems, tries, rewards, metrics, gradNorm }: ShownStep): LoopStep {
    if (typeof gradNorm !== 'number')
      throw new LoopError(
        `show got ${describe(gradNorm)} as gradNorm. Write: const { gradNorm } = await learner.optimStep({ lr });`,
      );
    this.facts.upsideDown += upsideDown(this.#rows, rewards);
    const seconds = this.#seconds;
    const now = performance.now();
    seconds.other = (now - this.#since) / 1000 - seconds.draw - seconds.gradient - seconds.optimizer;
    [this.#since, this.#seconds] = [now, { draw: 0, gradient: 0, optimizer: 0, other: 0 }];
    const first = problems.map((_, p) => tries.findIndex(({ group }) => group === p)).filter((i) => i !== -1);
    return {
      step,
      reward: rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length,
      loss: metrics['actor/pg_loss'],
      entropy: metrics['actor/entropy'],
      gradNorm,
      clipped: metrics['actor/pg_clipfrac'],
      logProbs: this.#logProbs,
      seconds,
      tries: first.map((i) => {
        const { messages, answer } = problems[tries[i].group];
        return { problem: messages.at(-1)?.content ?? '', answer, text: tries[i].text, reward: rewards[i] };
      }),
    };
  }
}

/** Returns the log-probs of the rows' trained tokens. Tries of silent groups are not trained, and have none. */
function trainedLogProbs(rows: readonly learners.TrainRow[], now: readonly ArrayLike<number>[]): LogProbs {
  const trained = rows.flatMap(({ mask, logProbs: drawn }, i) => {
    const at = Array.from(mask, (_, t) => t).filter((t) => mask[t] === 1 && !Number.isNaN(now[i][t]));
    return drawn && at.length > 0 ? [{ drawn: at.map((t) => drawn[t]), now: at.map((t) => now[i][t]) }] : [];
  });
  return { drawn: trained.map(({ drawn }) => drawn), now: trained.map((row) => row.now) };
}

/** Returns the advantage of a row, which is that of its last token. */
const advantageOf = ({ advantages = 1 }: learners.TrainRow): number =>
  typeof advantages === 'number' ? advantages : (advantages[advantages.length - 1] ?? 0);

/** Counts the pairs of a group in which the row with the higher reward has the smaller advantage. */
function upsideDown(rows: readonly learners.TrainRow[], rewards: readonly number[]): number {
  if (rows.length !== rewards.length) return 0; // not the batch that was shown
  let count = 0;
  for (const [i, a] of rows.entries())
    for (const [j, b] of rows.entries())
      if (a.group === b.group && rewards[i] > rewards[j] && advantageOf(a) < advantageOf(b)) count++;
  return count;
}

/** Returns the sum of the advantages of each group. */
function groupSums(rows: readonly learners.TrainRow[]): number[] {
  const sums = new Map<number | undefined, number>();
  for (const row of rows) sums.set(row.group, (sums.get(row.group) ?? 0) + advantageOf(row));
  return [...sums.values()];
}

const largestChange = (before: TensorMap, after: TensorMap): number =>
  [...before].reduce((most, [name, { data }]) => {
    const now = after.get(name)!.data;
    return data.reduce((so, value, i) => Math.max(so, Math.abs(value - now[i])), most);
  }, 0);

/** Message to the worker. */
export interface LoopRequest extends Pick<LoopRun, 'text' | 'options' | 'mostUpdates'> {
  model: CheckpointWithTokenizer;
}

/** Message from the worker. */
export type LoopReply =
  | { step: LoopStep }
  | { facts: LoopFacts }
  | { failed: { message: string; line: number | undefined } };

/** Handles the one request that the page sends to the worker: runs the loop. */
export function answerLoop(given: {
  library: LoopLibrary;
  openEngine: (config: TrainConfig, model: CheckpointWithTokenizer) => Promise<TrainerEngine>;
}): void {
  const reply = (message: LoopReply) => postMessage(message);
  addEventListener('message', ({ data }: MessageEvent<LoopRequest>) => {
    const { model, ...request } = data;
    const run = runLoop({
      ...request,
      library: given.library,
      addressOf: (text) => URL.createObjectURL(new Blob([text], { type: 'text/javascript' })),
      openEngine: (config) => given.openEngine(config, model),
      onStep: (step) => reply({ step }),
    });
    run.then(
      (facts) => reply({ facts }),
      (error: unknown) =>
        reply({ failed: { message: describe(error), line: error instanceof LoopError ? error.line : undefined } }),
    );
  });
}

/** Converts an error in the text of the loop to a LoopError with the line. */
function loopError(error: unknown, address: string): Error {
  if (!(error instanceof Error)) return new LoopError(describe(error));
  const stack = error.stack ?? '';
  const at = stack.indexOf(address);
  const line = at === -1 ? undefined : Number(/^:(\d+)/.exec(stack.slice(at + address.length))?.[1] ?? NaN);
  const named = error instanceof InputError ? error.message : `${error.name}: ${error.message}`;
  return new LoopError(line === undefined || Number.isNaN(line) ? named : `Line ${line}: ${named}`, line || undefined);
}
