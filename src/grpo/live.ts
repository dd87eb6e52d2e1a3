/** What may change during a run: some settings, checked as a config's are, and the rules that training goes by. */

import { InputError } from '../errors.ts';
import type { Task } from '../tasks/task.ts';
import type { Tool } from '../tasks/tool.ts';
import { type Flagged, keyDocs } from './config/keys.ts';
import { resolveTrainTree } from './config/resolve.ts';
import { TRAIN_SCHEMA } from './config/schema/index.ts';
import { copyOf, setAt, type Tree, valueAt } from './config/tree.ts';
import type { TrainConfig } from './config/types.ts';
import { hasRewardModels } from './generate/options.ts';
import type { AsyncCustomLoss } from './losses/custom.ts';
import type { PolicyLoss } from './losses/index.ts';
import { pipelineOf } from './pipeline/settings.ts';
import type { LiveChange, TrainerEngine } from './types.ts';

type LiveKey = Flagged<typeof TRAIN_SCHEMA.entries, 'live'>;

/** Settings that can change during a run: those that the schema calls live. */
export const LIVE_SETTINGS: readonly LiveKey[] = keyDocs(TRAIN_SCHEMA).flatMap(({ path, live }) =>
  live ? [path as LiveKey] : [],
);

/** Values of live settings, by key. */
export type LiveSettings = Partial<Record<LiveKey, number>>;

/** What training goes by in place of the task's own and the config's loss; `undefined` = back to that. */
export interface Rules {
  /** Replaces the task's reward in training. Evaluations score by the task's own. */
  reward?: Task['reward'] | undefined;
  /** Like `GrpoTrainerOptions.loss`. */
  loss?: AsyncCustomLoss | PolicyLoss | undefined;
  /** Replace the task's tools, in training and in evaluations; those of environments stay. */
  tools?: Tool[] | undefined;
}

/** The config with these settings. Throws InputError for a key that is fixed during a run, and as `resolveTrainConfig`. */
export function withSettings(
  config: TrainConfig,
  settings: LiveSettings,
  { reference }: Pick<TrainerEngine, 'reference'>,
): TrainConfig {
  const tree = copyOf(config as unknown as Tree);
  for (const [key, value] of Object.entries(settings)) {
    refuseFixed(config, key);
    if (typeof value !== 'number')
      throw new InputError(`change: "${key}" is ${JSON.stringify(value)}; allowed: numbers.`);
    setAt(tree, key, value);
  }
  const { 'actor.klLossCoef': klLossCoef } = settings;
  if (klLossCoef !== undefined) setAt(tree, 'actor.useKlLoss', klLossCoef > 0);
  const changed = resolveTrainTree(tree, 'change');
  if (changed.actor.useKlLoss && !reference)
    throw new InputError(
      `change: "actor.klLossCoef" is ${klLossCoef}, but this run was started without a reference, which takes memory of its own; ` +
        'start a run with actor.klLossCoef above 0, and change it then.',
    );
  return changed;
}

function refuseFixed(config: TrainConfig, key: string): void {
  const { actor, algorithm, rollout } = config;
  const refuse = (why: string): never => {
    throw new InputError(`change: "${key}" ${why}`);
  };
  if (!LIVE_SETTINGS.some((live) => live === key))
    refuse(`stays as it is while a run goes on; what may change is ${LIVE_SETTINGS.join(', ')}. Start a run with it.`);
  if (key === 'actor.entropyCoeff' && actor.entropyTarget !== undefined)
    refuse('follows actor.entropyTarget in this run; start one without that.');
  const isLate = rollout.partialRollout || algorithm.replayBufferSize > 0 || pipelineOf(config).isAsync;
  if (key.startsWith('rollout.') && isLate)
    refuse(
      'cannot change where a step trains on tokens of earlier steps; start a run without rollout.partialRollout, ' +
        'algorithm.replayBufferSize and trainer.pipeline.',
    );
}

/** What differs between two configs of a run. */
export function changesOf(step: number, before: TrainConfig, after: TrainConfig): LiveChange[] {
  return LIVE_SETTINGS.flatMap((key) => {
    const [from, to] = [before, after].map((config) => valueAt(config, key) as number);
    return from === to ? [] : [{ step, key, from, to }];
  });
}

/** The config that a run continues with, after its changes; a key that was given another value since then keeps that. */
export function withChanges(
  config: TrainConfig,
  changes: readonly LiveChange[],
  engine: Pick<TrainerEngine, 'reference'>,
): TrainConfig {
  return changes.reduce(
    (now, { key, from, to }) => (valueAt(now, key) === from ? withSettings(now, { [key]: to }, engine) : now),
    config,
  );
}

/** The task as these rules make it. Throws InputError if the reward is not the task's alone. */
export function withRules(task: Task, { reward, tools }: Rules, config: TrainConfig): Task {
  if (reward && hasRewardModels(config.reward))
    throw new InputError(
      'replace: models score this run beside its rule, and the reward cannot be replaced; start a run without reward.judge, reward.model and reward.rubric.',
    );
  return reward || tools ? { ...task, ...(reward && { reward }), ...(tools && { tools }) } : task;
}

/** Changes that took effect at the start of a step. */
export interface AppliedChanges {
  settings: LiveChange[];
  /** True if the rules were replaced. */
  isReplaced: boolean;
}

/** Config and rules of a run's present step; changes wait for the next one. */
export class LiveRun {
  config: TrainConfig;
  rules: Rules = {};
  /** Settings that changed so far, in order. */
  changes: LiveChange[] = [];
  readonly #given: TrainConfig;
  readonly #task: Task;
  readonly #engine: Pick<TrainerEngine, 'reference'>;
  #asked: { settings: LiveSettings; rules?: Rules } = { settings: {} };

  constructor(config: TrainConfig, task: Task, engine: Pick<TrainerEngine, 'reference'>) {
    [this.config, this.#given, this.#task, this.#engine] = [config, config, task, engine];
  }

  /** The task with the tools that replaced its own. */
  get evaluated(): Task {
    return withRules(this.#task, { tools: this.rules.tools }, this.config);
  }

  /** Throws InputError, and is then as it was. */
  change(settings: LiveSettings): void {
    const all = { ...this.#asked.settings, ...settings };
    withSettings(this.config, all, this.#engine);
    this.#asked.settings = all;
  }

  /** Throws InputError, and is then as it was. */
  replace(rules: Rules): void {
    const all = { ...this.rules, ...this.#asked.rules, ...rules };
    withRules(this.#task, all, this.config);
    this.#asked.rules = all;
  }

  /** Applies what was asked for since the last step; undefined = nothing was. */
  apply(step: number): AppliedChanges | undefined {
    const { settings, rules } = this.#asked;
    if (!rules && Object.keys(settings).length === 0) return undefined;
    const changed = withSettings(this.config, settings, this.#engine);
    const applied = changesOf(step, this.config, changed);
    this.changes = [...this.changes, ...applied];
    this.config = changed;
    this.rules = rules ?? this.rules;
    this.#asked = { settings: {} };
    return { settings: applied, isReplaced: rules !== undefined };
  }

  /** Applies the changes of a checkpoint to the config as it was given. */
  restore(changes: readonly LiveChange[] = []): void {
    this.changes = [...changes];
    this.config = withChanges(this.#given, changes, this.#engine);
  }
}
