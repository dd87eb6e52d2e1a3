/**
 * Changes during a run: some settings, checked like those of a config, and the rules of training (reward, loss, tools).
 */

import { InputError } from '../errors.ts';
import type { Task } from '../tasks/task.ts';
import type { Tool } from '../tasks/tool.ts';
import { type Flagged, keyDocs } from './config/keys.ts';
import { resolveTrainTree } from './config/resolve.ts';
import { TRAIN_SCHEMA } from './config/schema/index.ts';
import { copyOf, setAt, type Tree, valueAt } from './config/tree.ts';
import type { TrainConfig } from './config/types.ts';
import { hasRewardModels } from './generate/options.ts';
import type { AsyncCustomLoss } from './losses/types.ts';
import type { PolicyLoss } from './losses/index.ts';
import { pipelineOf } from './pipeline/settings.ts';
import type { LiveChange, TrainerEngine } from './types.ts';

type LiveKey = Flagged<typeof TRAIN_SCHEMA.entries, 'live'>;

/** Settings that can change during a run: those that the schema marks as live. */
export const LIVE_SETTINGS: readonly LiveKey[] = keyDocs(TRAIN_SCHEMA).flatMap(({ path, live }) =>
  live ? [path as LiveKey] : [],
);

/** Values of live settings, by key. */
export type LiveSettings = Partial<Record<LiveKey, number>>;

/** Replacements for the task's reward and tools and for the config's loss. `undefined` restores the original. */
export interface Rules {
  /** Replaces the task's reward in training. Evaluations use the task's own. */
  reward?: Task['reward'] | undefined;
  /** Like `GrpoTrainerOptions.loss`. */
  loss?: AsyncCustomLoss | PolicyLoss | undefined;
  /** Replaces the task's tools, in training and in evaluations. Tools of environments stay. */
  tools?: Tool[] | undefined;
}

/**
 * Returns the config with changed settings. Throws InputError for a key that is fixed during a run, and like
 * `resolveTrainConfig`.
 */
export function withSettings(
  config: TrainConfig,
  settings: LiveSettings,
  { reference }: Pick<TrainerEngine, 'reference'>,
): TrainConfig {
  for (const [key, value] of Object.entries(settings)) {
    refuseFixed(config, key);
    if (typeof value !== 'number')
      throw new InputError(`change: "${key}" is ${JSON.stringify(value)}; allowed: numbers.`);
  }
  const changed = resolveTrainTree(treeWith(config, settings), 'change');
  if (changed.actor.useKlLoss && !reference)
    throw new InputError(
      `change: "actor.klLossCoef" is ${settings['actor.klLossCoef']}, but this run was started without a reference model. ` +
        'Start a run with actor.klLossCoef above 0, then change it.',
    );
  return changed;
}

/** Returns the tree of the config with changed settings, without checks. */
export function treeWith(config: TrainConfig, settings: LiveSettings): Tree {
  const tree = copyOf(config as unknown as Tree);
  for (const [key, value] of Object.entries(settings)) setAt(tree, key, value);
  const { 'actor.klLossCoef': klLossCoef } = settings;
  if (klLossCoef !== undefined) setAt(tree, 'actor.useKlLoss', klLossCoef > 0);
  return tree;
}

function refuseFixed(config: TrainConfig, key: string): void {
  const { actor, algorithm, rollout } = config;
  const refuse = (why: string): never => {
    throw new InputError(`change: "${key}" ${why}`);
  };
  if (!LIVE_SETTINGS.some((live) => live === key))
    refuse(`cannot change during a run; allowed: ${LIVE_SETTINGS.join(', ')}. Start a run with it.`);
  if (key === 'actor.entropyCoeff' && actor.entropyTarget !== undefined)
    refuse('follows actor.entropyTarget in this run. Start a run without actor.entropyTarget to set it.');
  const isLate = rollout.partialRollout || algorithm.replayBufferSize > 0 || pipelineOf(config).isAsync;
  if (key.startsWith('rollout.') && isLate)
    refuse(
      'cannot change if a step trains on tokens of earlier steps. Start a run without rollout.partialRollout, ' +
        'algorithm.replayBufferSize and trainer.pipeline.',
    );
}

/** Live settings that differ between two configs of a run. */
export function changesOf(step: number, before: TrainConfig, after: TrainConfig): LiveChange[] {
  return LIVE_SETTINGS.flatMap((key) => {
    const [from, to] = [before, after].map((config) => valueAt(config, key) as number);
    return from === to ? [] : [{ step, key, from, to }];
  });
}

/**
 * Returns the config that a resumed run continues with, after its changes. If the user has edited a changed key in the
 * config since then, the config's value wins.
 */
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

/**
 * Returns the task with these rules applied. Throws InputError if the rules have a reward and reward models score the
 * run, because the reward is then not the task's alone.
 */
export function withRules(task: Task, { reward, tools }: Rules, config: TrainConfig): Task {
  if (reward && hasRewardModels(config.reward))
    throw new InputError(
      'replace: models score this run in addition to its reward, and the reward cannot be replaced. Start a run without reward.judge, reward.model and reward.rubric.',
    );
  return reward || tools ? { ...task, ...(reward && { reward }), ...(tools && { tools }) } : task;
}

/** Changes that took effect at the start of a step. */
export interface AppliedChanges {
  settings: LiveChange[];
  /** True if reward, tools or loss were replaced. */
  isReplaced: boolean;
}

/** Config and rules of the current step. Changes wait for the next step. */
export class LiveRun {
  config: TrainConfig;
  rules: Rules = {};
  /** Settings changed so far, in order. */
  changes: LiveChange[] = [];
  readonly #given: TrainConfig;
  readonly #task: Task;
  readonly #engine: Pick<TrainerEngine, 'reference'>;
  #asked: { settings: LiveSettings; rules?: Rules } = { settings: {} };

  constructor(config: TrainConfig, task: Task, engine: Pick<TrainerEngine, 'reference'>) {
    [this.config, this.#given, this.#task, this.#engine] = [config, config, task, engine];
  }

  /** The task with its current tools, replaced or its own. */
  get evaluated(): Task {
    return withRules(this.#task, { tools: this.rules.tools }, this.config);
  }

  /** Changes settings from the next step on. If it throws InputError, nothing has changed. */
  change(settings: LiveSettings): void {
    const all = { ...this.#asked.settings, ...settings };
    withSettings(this.config, all, this.#engine);
    this.#asked.settings = all;
  }

  /** Replaces rules from the next step on. If it throws InputError, nothing has changed. */
  replace(rules: Rules): void {
    const all = { ...this.rules, ...this.#asked.rules, ...rules };
    withRules(this.#task, all, this.config);
    this.#asked.rules = all;
  }

  /** Applies the changes requested since the last step; undefined if there were none. */
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

  /** Applies the changes of a checkpoint to the original config. */
  restore(changes: readonly LiveChange[] = []): void {
    this.changes = [...changes];
    this.config = withChanges(this.#given, changes, this.#engine);
  }
}
