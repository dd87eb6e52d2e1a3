/**
 * Data of lesson 4, the numbers in its text, and its pictures for readers without JavaScript. Vite puts the pictures into the page's HTML.
 */

import { computeAdvantages } from '../../../src/grpo/advantages/index.ts';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import type { Message } from '../../../src/tasks/task.ts';
import { short, signed } from '../../../src/ui/format.ts';
import { CALL, readCall } from '../../state/tries/calls.ts';
import { tokenGradients } from '../2-losses/losses.ts';
import { advantagesOf, MAX_LENGTH, percent, RECORDED as UPDATED } from '../2-losses/stills.ts';
import type { TokenGroup } from '../2-losses/updates.ts';
import { AUTHORS, type Author, authorsOf } from './authors.ts';
import { cheatPlot } from './plots.ts';
import data from './recorded.json' with { type: 'json' };

/** A recorded run with a reward that the model learned to cheat. */
export interface CheatRun {
  pays: string;
  command: string;
  commit: string;
  /** Entries: step, mean reward, share of right tries. */
  steps: [number, number, number][];
  /** Entries: step, share of held-out problems solved by the first try. */
  heldOut: [number, number][];
  /** Other seeds of the run. `paid`: mean rewards of the first and the last step. */
  otherSeeds: { seed: number; commit: string; paid: [number, number]; heldOut: [number, number][] }[];
  /** Tries at one problem, from some steps of the run. */
  tries: LoggedRollout[];
}

interface Recorded {
  adapter: string;
  date: string;
  runs: CheatRun[];
  /** Tries of the page's recorded run, one for each of eight problems, near its end. */
  tools: { command: string; commit: string; tries: LoggedRollout[] };
  /** A recorded group of games. `first` is the first board. `texts` alternates between the model's moves and the game's replies. */
  game: { command: string; commit: string; first: string; tries: { turnRewards: number[]; texts: string[] }[] };
}

export const RECORDED = data as unknown as Recorded;

export interface Call {
  /** Name of the tool that was called. */
  tool: string;
  /** Values of the arguments. */
  expression: string;
  result: string;
}

/** Returns the first tool call of each turn of a try, with its result. */
export function callsOf(messages: readonly Message[]): Call[] {
  return messages.flatMap(({ role, content }, m) => {
    const [read] = role === 'assistant' ? (content.match(CALL) ?? []).flatMap((text) => readCall(text) ?? []) : [];
    if (!read) return [];
    const expression = read.shown.slice(read.name.length + 1, -1);
    return [{ tool: read.name, expression, result: messages[m + 1]?.content ?? '' }];
  });
}

/** Returns how many tries called the tool `own`, and how many called others. */
export function callersInWords(tries: readonly (readonly Call[])[], own: string): string {
  const callers = (is: (call: Call) => boolean) => tries.filter((calls) => calls.some(is)).length;
  const others = [...new Set(tries.flat().map(({ tool }) => tool))].filter((tool) => tool !== own);
  return [
    `${callers(({ tool }) => tool === own)} of ${tries.length} tries called your tool.`,
    ...others.map((other) => `${callers(({ tool }) => tool === other)} called ${other} instead.`),
  ].join(' ');
}
export { UPDATED };

/** Choices of figure 4.1: the authors whose tokens are trained. */
export const TRAINED: Readonly<Record<string, { name: string; by: readonly Author[] }>> = {
  model: { name: 'what the model wrote', by: ['model'] },
  tools: { name: 'what the model and the tools wrote', by: ['model', 'tool'] },
  all: { name: 'everything after the prompt', by: ['model', 'tool', 'template'] },
};

/** Returns each author's share of the pull on the tries of a group before the first update. The loss is a mean over tokens. */
export function authorShares({ tries }: TokenGroup, trained: readonly Author[]): Record<Author, number> {
  const advantages = advantagesOf(tries.map(({ reward }) => reward));
  const authors = tries.map(authorsOf);
  const rows = tries.map(({ logProbs }, i) => ({
    mask: authors[i].map((by) => (trained.includes(by) ? 1 : 0)),
    logProbs: logProbs[0],
    advantage: advantages[i],
  }));
  const [{ tokens }] = tokenGradients(rows, ['dapo'], {
    logProbs: rows.map(({ logProbs }) => logProbs),
    maxResponseLength: MAX_LENGTH,
  });
  const sums = { prompt: 0, model: 0, tool: 0, template: 0 };
  tokens.grad.forEach((grads, s) => grads.forEach((grad, t) => (sums[authors[s][t]] += Math.abs(grad))));
  const total = AUTHORS.reduce((sum, by) => sum + sums[by], 0);
  return Object.fromEntries(AUTHORS.map((by) => [by, sums[by] / total])) as Record<Author, number>;
}

/** Advantages of a try: one per turn (turn_loo), and one for the whole try (grpo). */
export interface TurnAdvantages {
  turns: number[];
  whole: number;
}

/**
 * Returns the advantages of a group's tries whose turns earned `turnRewards`. Each turn is modelled as one token of the model, followed by
 * one token of the game.
 */
export function turnAdvantages(turnRewards: readonly number[][]): TurnAdvantages[] {
  const masks = turnRewards.map((own) => own.flatMap(() => [1, 0]));
  const groups = turnRewards.map(() => 0);
  const rewards = turnRewards.map((own) => own.reduce((a, b) => a + b, 0));
  const byTurn = computeAdvantages('turn_loo', { rewards, groups, masks, turnRewards });
  const whole = computeAdvantages('grpo', { rewards, groups, masks });
  return turnRewards.map((own, s) => ({ turns: own.map((_, turn) => byTurn[s][2 * turn]), whole: whole[s][0] }));
}

/** The recorded games: rewards, moves and the end of each. */
export const GAMES = RECORDED.game.tries.map(({ turnRewards, texts }) => ({
  turnRewards,
  /** Text of each turn's move, as the model wrote it, with the reply of the game. */
  moves: turnRewards.map((_, turn) => ({ move: texts[2 * turn], reply: texts[2 * turn + 1] ?? '' })),
  end: /You have (.*)\./.exec(texts.at(-1)!)?.[1] ?? 'ended by the third illegal move',
}));

const [groupA] = UPDATED.groups;
const [form, calls, long] = ['form', 'calls', 'length'].map((pays) => RECORDED.runs.find((run) => run.pays === pays)!);
const ends = ({ steps }: CheatRun) => [steps[0], steps.at(-1)!];
const [[firstForm, lastForm], [firstCalls, lastCalls], [firstLong, lastLong]] = [form, calls, long].map(ends);
const held = ({ heldOut }: Pick<CheatRun, 'heldOut'>, at: number) => heldOut.at(at)![1].toFixed(2);
/** Results of the run with the reward for tool calls: steps after which the model was evaluated, and share of held-out problems solved. */
export const [CALL_STEPS, CALL_SHARES] = [calls.heldOut.map(([step]) => step), calls.heldOut.map(([, share]) => share)];
const peakOf = ({ heldOut }: CheatRun) => heldOut.reduce((most, one) => (one[1] > most[1] ? one : most));
const [mostCalls, mostLong] = [calls, long].map(peakOf);
const othersEnd = ({ otherSeeds }: CheatRun) => otherSeeds.map((one) => held(one, -1)).join(' and ');
/** Returns a clause about the shares of held-out problems that other seeds solved in the end. */
export const othersInWords = (run: CheatRun): string =>
  `seeds ${run.otherSeeds.map(({ seed }) => seed).join(' and ')} (commit ${run.otherSeeds[0].commit}) ended at ${othersEnd(run)}`;
const ALL = RECORDED.runs.flatMap(({ steps, heldOut, otherSeeds }) => [
  { paid: [steps[0][1], steps.at(-1)![1]], heldOut },
  ...otherSeeds,
]);
/** Runs in which the reward rose and the share of held-out problems solved fell. */
const CHEATED = ALL.filter(({ paid, heldOut }) => paid[1] > paid[0] && heldOut.at(-1)![1] < heldOut[0][1]);
const toolShare = authorShares(groupA, TRAINED['tools'].by).tool;
const otherShare = 1 - authorShares(groupA, TRAINED['all'].by).model;

/** Numbers in the lesson's text, by their name in the HTML. */
export const NUMBERS: Readonly<Record<string, string>> = {
  'tool-share': percent(toolShare),
  'other-share': percent(otherShare),
  'paid-first': firstForm[1].toFixed(2),
  'paid-last': lastForm[1].toFixed(2),
  'right-first': firstForm[2].toFixed(2),
  'right-last': lastForm[2].toFixed(2),
  'held-first': held(form, 0),
  'held-last': held(form, -1),
  'step-last': `${lastForm[0]}`,
  'calls-steps': `${lastCalls[0]}`,
  'calls-paid-first': firstCalls[1].toFixed(2),
  'calls-paid-last': lastCalls[1].toFixed(2),
  'calls-peak': mostCalls[1].toFixed(2),
  'calls-peak-step': `${mostCalls[0]}`,
  'length-paid-first': firstLong[1].toFixed(2),
  'length-paid-last': lastLong[1].toFixed(2),
  'length-peak': mostLong[1].toFixed(2),
  'length-peak-step': `${mostLong[0]}`,
  'length-end': held(long, -1),
  ...{ 'toy-turns': '201', 'toy-whole': '285' }, // test/unit/turnCredit.test.ts
  ...{ runs: `${ALL.length}`, cheated: `${CHEATED.length}` },
  ...{ 'form-others': othersEnd(form), 'calls-others': othersEnd(calls), 'length-others': othersEnd(long) },
  'calls-end': CALL_SHARES.at(-1)!.toFixed(2),
};

const sharesTable = (): string => {
  const rows = Object.values(TRAINED).map(({ name, by }) => {
    const shares = authorShares(groupA, by);
    return `<tr><td>${name}</td>${(['model', 'tool', 'template'] as const).map((one) => `<td>${percent(shares[one])}</td>`).join('')}</tr>`;
  });
  return `<table><caption>Share of the pull on group A</caption><thead><tr><th>trained on</th><th>model</th><th>tool</th><th>template</th></tr></thead><tbody>${rows.join('')}</tbody></table>`;
};

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

const toolTable = (): string => {
  const rows = RECORDED.tools.tries.map(({ messages, promptMessages }) => {
    const said = messages.slice(promptMessages).map(({ content }) => escaped(content));
    return `<tr><td>${escaped(messages[promptMessages - 1].content)}</td><td>${said.join('<br>')}</td></tr>`;
  });
  return `<table><caption>Eight tries of the trained model</caption><thead><tr><th>problem</th><th>calls and results</th></tr></thead><tbody>${rows.join('')}</tbody></table>`;
};

const turnTable = (): string => {
  const advantages = turnAdvantages(GAMES.map(({ turnRewards }) => turnRewards));
  const rows = GAMES.map(
    ({ moves, end }, i) =>
      `<tr><td>${i + 1}: ${end}</td><td>${escaped(moves.map(({ move }) => move).join(', '))}</td><td>${advantages[i].turns.map(signed).join(', ')}</td><td>${signed(advantages[i].whole)}</td></tr>`,
  );
  return `<table><caption>Eight games of tic-tac-toe</caption><thead><tr><th>game</th><th>moves</th><th>each turn, turn_loo</th><th>whole game, GRPO</th></tr></thead><tbody>${rows.join('')}</tbody></table>`;
};

/** Describes a recorded run for a screen reader. */
export const runInWords = ({ steps }: Pick<CheatRun, 'steps'>): string => {
  const [first, last] = [steps[0], steps.at(-1)!];
  return `From step ${first[0]} to ${last[0]} the reward goes from ${short(first[1])} to ${short(last[1])}, and the share of right tries from ${short(first[2])} to ${short(last[2])}.`;
};

/** Pictures as HTML, by the number of their figure. */
export const STILLS: Readonly<Record<string, string>> = {
  '4.1': sharesTable(),
  '4.2': toolTable(),
  '4.3': cheatPlot(form, undefined, runInWords(form)),
  '4.4': turnTable(),
};
