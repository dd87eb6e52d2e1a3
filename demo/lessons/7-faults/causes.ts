/**
 * Nine causes of a run that does not learn, and the sign of each in a run. All messages of lesson 7 are generated from this table. Limits
 * are those of `webgrpo doctor` (src/report/doctor.ts) for causes that it knows.
 */

import { short } from '../../../src/ui/format.ts';
import { type Chart, CHARTS, early, known, late, type Run, runOf, stepsOf, type StoredTries, WINDOW } from './runs.ts';

/** Result of looking for a cause's sign in a run. `holds`: the run shows the sign. */
interface Sign {
  holds: boolean;
  /** A sentence such as "If ... were the cause, you would see this; this run shows that." */
  says: string;
}

interface Cause {
  name: string;
  sign(run: Run): Sign;
}

const ends = (run: Run): string => `${stepsOf(run) - WINDOW + 1} to ${stepsOf(run)}`;

/** Returns the step at which a chart has its largest absolute value, and the value; undefined if no value was measured. */
function peak({ curves }: Run, chart: Chart): { step: number; value: number } | undefined {
  const steps = curves[chart].flatMap((value, step) => (value === null || step === 0 ? [] : [{ step, value }]));
  return steps.toSorted((a, b) => Math.abs(b.value) - Math.abs(a.value))[0];
}

/** Counts groups among the shown tries whose rewards are all equal, and those of these groups in which some advantage is not 0. */
export function agreeing({ tries }: Run): { groups: number; pushed: number } {
  const groups = tries.flatMap((step) => [0, 1].map((group) => step.filter((one) => one.group === group)));
  const agree = groups.filter((group) => new Set(group.map(({ score }) => score)).size === 1);
  const pushed = agree.filter((group) => group.some(({ advantage }) => Math.abs(advantage ?? 0) > 1e-6));
  return { groups: agree.length, pushed: pushed.length };
}

/** Counts the steps in which the mean reward differs from the share of right tries. */
const parted = ({ curves }: Run): number =>
  curves['critic/score/mean'].filter((score, step) => {
    const right = curves['critic/acc/mean'][step];
    return score !== null && right !== null && Math.abs(score - right) > 1e-3;
  }).length;

const right = 'critic/acc/mean';
const heldOut = 'val-core/gsm8k-tool/acc/mean@1';
const entropy = 'actor/entropy';
const differ = 'training/rollout_probs_diff_max';

export const CAUSES = {
  'rate-high': {
    name: 'the learning rate is too high',
    sign(run) {
      const { value, step } = peak(run, 'actor/ppo_kl')!;
      return {
        holds: Math.abs(value) >= 0.1,
        says: `If the learning rate were too high, one update would move the model by a KL of 0.1 or more. The largest KL here is ${short(Math.abs(value))}, at step ${step}.`,
      };
    },
  },
  'rate-low': {
    name: 'the learning rate is too low',
    sign(run) {
      const { value, step } = peak(run, 'actor/ppo_kl')!;
      return {
        holds: Math.abs(value) < 1e-5,
        says: `If the learning rate were too low, no update would move the model: the KL would stay below 0.00001. Here it reaches ${short(Math.abs(value))}, at step ${step}.`,
      };
    },
  },
  cut: {
    name: 'answers are cut at the limit of their length',
    sign(run) {
      const first = run.curves['stop/max_tokens'][1] ?? 0;
      return {
        holds: first >= 0.2,
        says: `If the limit were too short, many tries would be cut from the first step on. At step 1 here ${percent(first)} of the tries are cut.`,
      };
    },
  },
  mixed: {
    name: 'advantages go to the wrong tries',
    sign(run) {
      const { groups, pushed } = agreeing(run);
      return {
        holds: pushed > 0,
        says: `If advantages went to the wrong tries, they would not be 0 in a group whose tries all earned the same. The tries below have ${groups} such groups, and in ${pushed === 0 ? 'all of them every advantage is 0' : `${pushed} of them an advantage is not 0`}.`,
      };
    },
  },
  pays: {
    name: 'the reward pays for something else than right answers',
    sign(run) {
      const steps = parted(run);
      return {
        holds: steps > 0,
        says: `If the reward paid for something else, it would differ from the share of right tries. Here ${steps === 0 ? `the two are equal in all ${stepsOf(run)} steps` : `the two differ in ${steps} of ${stepsOf(run)} steps`}.`,
      };
    },
  },
  differ: {
    name: 'sampler and trainer do not have the same probabilities',
    sign(run) {
      const most = Math.max(0, ...known(run, differ));
      return {
        holds: most >= 0.02,
        says: `If sampler and trainer disagreed, their probabilities of a token would differ by 0.02 or more. The largest difference here is ${short(most)}.`,
      };
    },
  },
  collapse: {
    name: 'the model tries nothing new: its entropy is gone',
    sign(run) {
      const [before, after] = [early(run, entropy)!, late(run, entropy)];
      const solved = late(run, right)!;
      const isLow = after !== undefined && (after < before / 10 || (after < 0.02 && after < before / 3));
      const here =
        after === undefined
          ? `Here it was ${short(known(run, entropy).at(-1)!)} when it was last measured. Since then no group was left to train on, because its tries all earned the same.`
          : `In steps ${ends(run)} here entropy is ${short(after)} (it was ${short(before)}), and ${percent(solved)} of the tries are right.`;
      return {
        holds: isLow && solved < 0.85,
        says: `If the model had stopped trying, entropy would be close to 0 while problems are still unsolved. ${here}`,
      };
    },
  },
  tools: {
    name: 'the calculator fails',
    sign(run) {
      const [failed = 0] = known(run, 'tool_call_counts/error_rate');
      return {
        holds: failed >= 0.9,
        says: `If the calculator failed, nearly all calls would end in an error from the first step on. At step 1 here ${percent(failed)} of them did.`,
      };
    },
  },
  none: {
    name: 'nothing is wrong',
    sign(run) {
      const [before, after] = [early(run, right)!, late(run, right)!];
      const most = Math.max(0, ...known(run, differ));
      const { groups, pushed } = agreeing(run);
      const learns = after > before + 0.15 && after > 0.5;
      const failed = !learns
        ? `the share of right tries would rise as in a sound run. In the first ${WINDOW} steps here it is ${percent(before)}, in the last ${WINDOW} it is ${percent(after)}.`
        : most >= 0.02
          ? `sampler and trainer would have the same probabilities. Here they differ by up to ${short(most)}, although more and more tries are right.`
          : `a group whose tries all earned the same would be silent. In ${pushed} of ${groups} such groups below a try is pushed all the same, although more and more tries are right.`;
      return { holds: learns && most < 0.02 && pushed === 0, says: `If nothing were wrong, ${failed}` };
    },
  },
} satisfies Record<string, Cause>;

export type CauseId = keyof typeof CAUSES;

export const CAUSE_IDS = Object.keys(CAUSES) as CauseId[];

/** Next checks that the reader can choose. `about`: the causes that the check can confirm or exclude. */
export const NEXT = {
  hand: {
    name: 'work out reward and advantages of one group by hand, and compare',
    about: ['mixed', 'pays'],
  },
  limit: { name: 'raise the limit of the answers, and count how many still reach it', about: ['cut'] },
  rate: { name: 'train again with a tenth of the learning rate', about: ['rate-high'] },
  probs: { name: 'before an update, compare the probabilities of sampler and trainer', about: ['differ'] },
  seeds: { name: 'leave it alone, and train another seed', about: ['none'] },
} as const satisfies Record<string, { name: string; about: readonly CauseId[] }>;

export type Next = keyof typeof NEXT;

/** Evidence that a reader can choose: a chart, or the tries. */
export type Evidence = Chart | 'tries';

interface Truth {
  cause: CauseId;
  /** Evidence that decides between the causes. The answer names the first one. */
  evidence: readonly Evidence[];
  next: Next;
  /** Fault of the run, and the evidence that shows the fault. */
  why: string;
  /** Reports of the same fault in other projects. */
  reports: readonly { name: string; url: string }[];
  /** Setting that the reader trains with. The first value is the recipe's. */
  repair: { key: string; values: readonly string[]; about: string };
}

const github = (name: string, project: string, number: number) => ({
  name: `${name} #${number}`,
  url: `https://github.com/${project}/issues/${number}`,
});

/** Truth about each run, by its number. */
export const TRUTHS: readonly Truth[] = [
  {
    cause: 'none',
    evidence: [right, heldOut, 'critic/score/mean'],
    next: 'seeds',
    why: 'This is the default recipe with seed 4. The reward jumps about because each step has other problems. The loss stays near 0 because the advantages of a group cancel.',
    reports: [github('trl', 'huggingface/trl', 2703), github('open-r1', 'huggingface/open-r1', 239)],
    repair: {
      key: 'seed',
      values: ['5', '6', '7'],
      about: 'Nothing needs repair. Train another seed, and see how far two sound runs lie apart.',
    },
  },
  {
    cause: 'rate-high',
    evidence: ['actor/ppo_kl', 'actor/grad_norm'],
    next: 'rate',
    why: 'actor.optim.lr was 0.009, and the recipe has 0.0003. One step was enough: the tries turned into broken calls without an end, none was right any more, and a group of wrong tries teaches nothing.',
    reports: [github('ms-swift', 'modelscope/ms-swift', 6550)],
    repair: {
      key: 'actor.optim.lr',
      values: ['3e-4', '1e-3', '3e-3'],
      about: 'The recipe has 0.0003. Try also how much is too much.',
    },
  },
  {
    cause: 'cut',
    evidence: ['stop/max_tokens', 'tries'],
    next: 'limit',
    why: 'data.maxResponseLength was 24. A try with two calls of the calculator needs more than 30 tokens, tool output included, so it never reached its last line.',
    reports: [github('trl', 'huggingface/trl', 5697), github('autocontext', 'greyhaven-ai/autocontext', 1067)],
    repair: {
      key: 'data.maxResponseLength',
      values: ['160', '48', '32'],
      about: 'The recipe has 160. How much is enough?',
    },
  },
  {
    cause: 'mixed',
    evidence: ['tries'],
    next: 'hand',
    why: 'The advantages were right, but they went to other tries: one list was sorted by group, the other by place in the group. Every eighth try kept its own, so the run learned something all the same. No curve says what is wrong. Look for a right try that is pushed down, or for a group that agrees and is pushed all the same.',
    reports: [github('R1-V', 'StarsfieldAI/R1-V', 67), github('Search-R1', 'PeterGriffinJin/Search-R1', 88)],
    repair: { key: 'algorithm.advEstimator', values: ['grpo'], about: "The trainer's own order of tries." },
  },
  {
    cause: 'pays',
    evidence: [right, heldOut, 'critic/score/mean', 'tries'],
    next: 'hand',
    why: 'Each token cost 0.05. A right answer has more than 30 tokens, so it earned less than a wrong guess of four. The model did what was paid: it stopped using the calculator.',
    reports: [github('trl', 'huggingface/trl', 2771)],
    repair: { key: 'task.name', values: ['gsm8k-tool'], about: "The task's own reward: 1 for a right answer." },
  },
  {
    cause: 'differ',
    evidence: [differ],
    next: 'probs',
    why: 'The tries were drawn at temperature 0.7, and the trainer computed their probabilities at 1. The reward rises all the same, so it is easily missed. Each update is computed for another model than the one that drew.',
    reports: [github('trl', 'huggingface/trl', 3029), github('trl', 'huggingface/trl', 4159)],
    repair: {
      key: 'rollout.temperature',
      values: ['1', '0.7'],
      about: 'The same temperature for sampler and trainer, as the config sets it for both.',
    },
  },
];

/** Answer of a reader. */
export interface Answer {
  cause: CauseId;
  evidence: Evidence;
  next: Next;
}

/** Judgement of one of the three parts of an answer: cause, evidence, next check. */
export interface Judged {
  part: keyof Answer;
  ok: boolean;
  says: string;
}

const valueOf = (run: Run, chart: Chart): string => {
  const value = late(run, chart);
  return value === undefined ? 'not measured' : short(value);
};

/** Judges an answer. Each of its three parts earns a point or not, and gets a sentence. */
export function judge(run: Run, sound: Run, { cause, evidence, next }: Answer): Judged[] {
  const truth = TRUTHS[run.number];
  return [
    {
      part: 'cause',
      ok: cause === truth.cause,
      says: cause === truth.cause ? `Right: ${CAUSES[cause].name}.` : CAUSES[cause].sign(run).says,
    },
    { part: 'evidence', ok: truth.evidence.includes(evidence), says: evidenceSays(run, sound, evidence) },
    {
      part: 'next',
      ok: next === truth.next,
      says:
        next === truth.next
          ? 'Right: this check can prove you wrong, and it is cheap.'
          : `This would not tell much. ${NEXT[next].about.map((about) => CAUSES[about].sign(run).says).join(' ')}`,
    },
  ];
}

function evidenceSays(run: Run, sound: Run, evidence: Evidence): string {
  const { evidence: accepted } = TRUTHS[run.number];
  if (evidence === 'tries')
    return accepted.includes('tries')
      ? 'Right: the tries show it.'
      : 'The tries alone do not decide it. Look for a curve that could not look like this if all were well.';
  const { name } = CHARTS[evidence];
  if (accepted.includes(evidence)) return `Right: ${name} shows it.`;
  const [here, there] = [valueOf(run, evidence), valueOf(sound, evidence)];
  return run.number === sound.number
    ? `In steps ${ends(run)} ${name} is ${here}. That is as it should be, but it does not show that the model learns.`
    : `In steps ${ends(run)} ${name} is ${here} here and ${there} in a sound run. That does not decide it.`;
}

/** Formats a share as a percentage. */
export function percent(share: number): string {
  return `${Math.round(100 * share)}%`;
}

/** Returns all runs. */
export const runsOf = (stored: StoredTries): Run[] => stored.map((_, number) => runOf(number, stored));
