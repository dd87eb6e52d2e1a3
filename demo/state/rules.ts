/** Rules and settings that change during a run, as signals: what is requested, what is in force, and what changed at which step. */

import { computed, signal } from '@preact/signals';
import type { LiveSettings } from '../../src/grpo/live.ts';
import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { LiveChange } from '../../src/grpo/types.ts';
import type { RuleKind } from '../../src/extensions/modules/index.ts';
import type { Session } from '../engine/session.ts';
import {
  type AskedRule,
  changesAt,
  OWN_RULES,
  RULE_KINDS,
  type RuleChange,
  type RunChange,
} from '../storage/runChanges.ts';
import type { Run } from '../training/run.ts';
import { stepsDone } from './page.ts';
import { run, state } from './stage.ts';

/** State of a rule's text in the editor. */
export interface Standing {
  state: 'checking' | 'tried' | 'asked' | 'applied' | 'refused';
  text: string;
  /** Line of the error in the rule, from 1, and its column; undefined if the error has no place. */
  line?: number | undefined;
  column?: number | undefined;
  /** Text of the rule that failed in a run and was removed. The editor keeps it to mark the error. */
  code?: string | undefined;
}

/** Changes of the shown run, oldest first. A run that repeats steps also has the changes of steps to come. */
export const record = signal<readonly RunChange[]>([]);

/** Returns the changes with readable text. */
export const worded = (of: readonly RunChange[]): { step: number; text: string }[] =>
  of.map((change) => ({ step: change.step, text: wordsFor(change) }));

/** The changes of the shown run, with readable text. */
export const changes = computed(() => worded(record.value));

/** Returns the changes as text, such as: Reward replaced by "reward guessing" at step 3. */
export const changesInWords = (of: readonly { step: number; text: string }[]): string =>
  of.map(({ step, text }) => `${text} at step ${step}`).join('; ');

/** Rules that replace the task's own. They are in force now, or will be from the next step on. */
export const asked = signal<Readonly<Partial<Record<RuleKind, AskedRule>>>>({});

export const standing = signal<Readonly<Partial<Record<RuleKind, Standing>>>>({});

interface Live {
  of: Run | undefined;
  trainer: GrpoTrainer;
  session: Session;
}

const newest = signal<Live | undefined>(undefined);

/** The trainer and session that can be changed now; undefined without an active run. */
export const live = computed(() => (run.value && newest.value?.of === run.value ? newest.value : undefined));

/** Requested settings that are not in force yet. After a device loss, the new engine receives them again. */
let waiting: LiveSettings = {};

let write: (changes: readonly RunChange[]) => void = () => {};

/** Shows the changes of a saved run. */
export function showChanges(of: readonly RunChange[]): void {
  [record.value, waiting, write] = [of, {}, () => {}];
}

/** Called when a run starts, or when it resumes with the changes that it had before. @param to called with every change, to store it */
export function beginChanges(before: readonly RunChange[] | undefined, to: typeof write): void {
  [record.value, waiting, write] = [before ?? [], {}, to];
  if (before) return;
  // A new run uses the rules of the previous run from its first step.
  for (const kind of RULE_KINDS)
    if (asked.value[kind]) stand(kind, { state: 'asked', text: 'Applies when a run starts.' });
}

/** Returns the first step that uses the rule that is asked for; undefined if none does yet, or if the rule is the task's own. */
export function inForceSince(kind: RuleKind): number | undefined {
  const isOf = (of: RunChange): of is RuleChange => 'rule' in of && of.rule === kind;
  const last = record.value.findLast((of): of is RuleChange => isOf(of) && of.step <= stepsDone.value + 1);
  const rule = asked.value[kind];
  return rule && last && last.name === rule.name && last.code === rule.code ? last.step : undefined;
}

/** Returns from which step on a change that is made now takes effect, as text. A step in progress keeps the rules with which it began. */
export function whenItApplies(): string {
  const trainer = live.value?.trainer;
  if (!trainer) return 'Applies when a run starts.';
  const next = trainer.state.step + (state.value === 'paused' ? 1 : 2);
  const isLast = state.value === 'stopping' || next > trainer.config.trainer.totalTrainingSteps;
  return isLast ? 'This run has no further step. Applies when the next run starts.' : 'Applies at the next step.';
}

/** Sets the state that the editor shows for a rule. */
export function stand(kind: RuleKind, to: Standing): void {
  standing.value = { ...standing.value, [kind]: to };
}

/** Selects the trainer that changes apply to, and applies the settings for its next step. Returns all changes of the run. */
export function setLive(trainer: GrpoTrainer, session: Session): readonly RunChange[] {
  newest.value = { of: run.value, trainer, session };
  for (const change of trainer.state.changes ?? []) recordChange(change);
  trainer.change({ ...changesAt(record.value, trainer.state.step + 1)?.settings, ...waiting });
  return record.value;
}

/** Changes settings from the next step on. Throws InputError. */
export function changeSettings(settings: LiveSettings): void {
  live.value?.trainer.change(settings);
  waiting = { ...waiting, ...settings };
  dropLater((of) => 'key' in of && of.key in settings);
}

/** Removes recorded changes of later steps that `isOf` matches: the visitor changes the same rule now. */
export function dropLater(isOf: (change: RunChange) => boolean): void {
  if (!live.value) return;
  const next = live.value.trainer.state.step + 1;
  const kept = record.value.filter((of) => of.step <= next || !isOf(of));
  if (kept.length < record.value.length) keep(kept);
}

/** Records that a changed setting came into force. */
export function settingChanged(change: LiveChange): void {
  const { [change.key as keyof LiveSettings]: _, ...rest } = waiting;
  waiting = rest;
  recordChange(change);
}

/** Records that the requested rules apply from step `step` on. */
export function rulesReplaced(step: number): void {
  for (const kind of RULE_KINDS) {
    if (standing.value[kind]?.state !== 'asked') continue;
    const rule = { name: OWN_RULES[kind], ...asked.value[kind] };
    stand(kind, { state: 'applied', text: `Applied at step ${step}: ${rule.name}.` });
    recordChange({ step, rule: kind, ...rule });
  }
}

/** Records a change once, although a step is repeated after a device loss. */
export function recordChange(change: RunChange): void {
  const isKnown = record.value.some((of) => JSON.stringify(of) === JSON.stringify(change));
  if (!isKnown) keep([...record.value, change]);
}

function keep(to: readonly RunChange[]): void {
  record.value = to;
  write(to);
}

/** Settings that a visitor can change during a run. */
export const LIVE_FIELDS = [
  { key: 'actor.optim.lr', label: 'Learning rate', why: 'How far an update moves the weights.' },
  { key: 'rollout.temperature', label: 'Temperature', why: 'Above 1, sampling is more random. Below 1, less.' },
  { key: 'actor.clipRatioLow', label: 'Clip below', why: "Lower limit of a token's ratio: 1 minus this." },
  { key: 'actor.clipRatioHigh', label: 'Clip above', why: "Upper limit of a token's ratio: 1 plus this." },
  { key: 'actor.klLossCoef', label: 'KL coefficient', why: 'Keeps the model close to the start model.' },
  { key: 'actor.entropyCoeff', label: 'Entropy bonus', why: 'Rewards higher entropy.' },
] as const;
const TITLES: Readonly<Record<RuleKind, string>> = { reward: 'Reward', loss: 'Loss', tool: 'Tool' };

function wordsFor(change: RunChange): string {
  if ('rule' in change)
    return `${TITLES[change.rule]} replaced by ${change.code === undefined ? change.name : `"${change.name}"`}`;
  if ('failed' in change) return `${TITLES[change.failed]}: failed, unscored tries were not trained on`;
  const name = LIVE_FIELDS.find(({ key }) => key === change.key)?.label ?? change.key;
  return `${name} ${change.from} \u2192 ${change.to}`;
}
