/** Tables of the handout, computed from the lessons' recorded data and by the library. */

import { lossWeights } from '../../../src/grpo/losses/aggregate.ts';
import { cispo } from '../../../src/grpo/losses/cispo.ts';
import { vanilla } from '../../../src/grpo/losses/vanilla.ts';
import { short, signed } from '../../../src/ui/format.ts';
import { RECORDED as STEP_1 } from '../1-groups/stills.ts';
import { percent } from '../7-faults/causes.ts';
import { early, late, RECORDED } from '../7-faults/runs.ts';
import { advantagesBy, type Method, questionOf } from '../kit/recordings.ts';

const table = (caption: string, head: readonly string[], rows: readonly (readonly string[])[]): string =>
  `<table><caption>${caption}</caption><thead><tr>${head.map((cell) => `<th>${cell}</th>`).join('')}</tr></thead><tbody>${rows
    .map((cells) => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`)
    .join('')}</tbody></table>`;

const rewardsOf = (group: number): number[] => STEP_1.groups[group].tries.map(({ score }) => score ?? NaN);

const numbers = ['1', '2', '3', '4', '5', '6', '7', '8'];

/** Returns a table with the rewards of a group. The line for the advantages is empty, or filled in for the answer sheet. */
function groupRows(name: string, rewards: readonly number[], methods: readonly Method[]): string {
  const line = (method: Method) => advantagesBy(method, rewards).map(signed);
  const empty = numbers.map(() => '&nbsp;');
  return table(
    name,
    ['try', ...numbers],
    [
      ['reward', ...rewards.map(short)],
      ...(methods.length === 0
        ? [
            ['advantage', ...empty],
            ['by RLOO', ...empty],
          ]
        : methods.map((method) => [method === 'grpo' ? 'advantage' : 'by RLOO', ...line(method)])),
    ],
  );
}

const GROUPS = [
  [`A. ${questionOf(STEP_1.groups[0])}`, rewardsOf(0)],
  [`B. ${questionOf(STEP_1.groups[1])}`, rewardsOf(1)],
  ['C. A group that agrees', Array(8).fill(1) as number[]],
] as const;

const RATIOS = [0.5, 0.9, 1, 1.1, 1.5, 4];
const CLIP = { clipRatioLow: 0.2, clipRatioHigh: 0.28, clipRatioC: 3, wMax: 1.28 };
/** The published CISPO has no lower bound of the weight. */
const CISPO = { ...CLIP, clipRatioLow: 1 };

/** Returns the pull of a loss on a token with this ratio: minus the loss's slope. */
const pull = (loss: typeof vanilla | typeof cispo, ratio: number, advantage: number): string => {
  const token = { logp: Math.log(ratio), oldLogp: 0, advantage, selected: false };
  const { grad } = loss.row(loss === cispo ? CISPO : CLIP, token, { length: 0, sum: 0, advantageSum: 0 });
  return signed(-grad);
};

const pulls = table(
  'Pull on a token. PPO and GRPO: clip 0.2 and 0.28, 3. CISPO: weight at most 1.28.',
  ['ratio', ...RATIOS.map(String)],
  [
    ['GRPO, advantage +1', ...RATIOS.map((ratio) => pull(vanilla, ratio, 1))],
    ['GRPO, advantage &minus;1', ...RATIOS.map((ratio) => pull(vanilla, ratio, -1))],
    ['CISPO, advantage +1', ...RATIOS.map((ratio) => pull(cispo, ratio, 1))],
    ['CISPO, advantage &minus;1', ...RATIOS.map((ratio) => pull(cispo, ratio, -1))],
  ],
);

const MODES = ['token-mean', 'seq-mean-token-mean', 'seq-mean-token-sum', 'seq-mean-token-sum-norm'] as const;
const masks = [33, 4].map((tokens) => new Uint8Array(tokens).fill(1));

/** Returns the share of the total weight that a try of 33 tokens has in a batch with a try of 4 tokens. */
const shareOfLong = (mode: (typeof MODES)[number]): number => {
  const sums = lossWeights({}, mode, masks, { maxResponseLength: 160 }).weights.map((one) =>
    one.reduce((a, b) => a + b, 0),
  );
  return sums[0] / (sums[0] + sums[1]);
};

const weights = table(
  'A try of 33 tokens beside one of 4: shares of the gradient',
  ['mean over', 'long', 'short'],
  MODES.map((mode) => [mode, percent(shareOfLong(mode)), percent(1 - shareOfLong(mode))]),
);

const CHARTS = [
  ['critic/acc/mean', 'right tries, last steps'],
  ['response_length/mean', 'tokens, last steps'],
  ['stop/max_tokens', 'cut, last steps'],
  ['actor/ppo_kl', 'KL of the update, largest'],
  ['training/rollout_probs_diff_max', 'sampler against trainer, largest'],
] as const;

const cell = (run: number, chart: (typeof CHARTS)[number][0]): string => {
  const { curves } = RECORDED.runs[run];
  const values = curves[chart].flatMap((value) => (value === null ? [] : [Math.abs(value)]));
  if (chart === 'actor/ppo_kl' || chart.startsWith('training/')) return short(Math.max(0, ...values));
  return short(late(RECORDED.runs[run], chart) ?? early(RECORDED.runs[run], chart) ?? 0);
};

const symptoms = table(
  'Six runs of lesson 7. Which one has which fault?',
  ['run', ...CHARTS.map(([, name]) => name)],
  RECORDED.runs.map((_, run) => [`${run}`, ...CHARTS.map(([chart]) => cell(run, chart))]),
);

/** Tables by number. */
export const STILLS: Readonly<Record<string, string>> = {
  '0.1': GROUPS.map(([name, rewards]) => groupRows(name, rewards, [])).join(''),
  '0.2': pulls,
  '0.3': weights,
  '0.4': symptoms,
  '0.5': GROUPS.map(([name, rewards]) => groupRows(name, rewards, ['grpo', 'rloo'])).join(''),
};
