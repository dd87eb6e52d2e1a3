/** replay.html: tables and curves that compare losses, and samples whose tokens are coloured by gradient. */

import { REPLAYED_METRICS, type ReplayReport, type ShownSample, type StepReport } from '../replay/replayReport.ts';
import { el, scrolling, table } from '../../ui/dom.ts';
import { plural, short } from '../../ui/format.ts';
import { chartFigures } from './runView.ts';

/** Adds the content of replay.html to the page. */
export function replayView({ title, notes, charts, steps, rewards }: ReplayReport, parent: HTMLElement): void {
  parent.append(el('h1', '', `Replay of ${title}`), ...notes.map((note) => el('p', '', note)));
  const { figures, draw } = chartFigures(charts);
  parent.append(figures, ...steps.flatMap(stepView), ...(rewards.length > 0 ? [rewardTable(rewards)] : []));
  draw();
}

/** Formats a number, or a dash for a missing one. */
const number = (value: number | null | undefined): string =>
  value === null || value === undefined ? '-' : short(value);

function stepView(step: StepReport): Node[] {
  const { losses, cosines, logged, shown } = step;
  const names = losses.map(({ name }) => name);
  const metrics = REPLAYED_METRICS.filter((name) => losses.some((loss) => loss.metrics[name] !== undefined)).map(
    (name) => [name, number(logged[name]), ...losses.map((loss) => number(loss.metrics[name]))],
  );
  const settings = (['lossMode', 'advEstimator', 'lossAggMode'] as const).map((key) => [
    key,
    '',
    ...losses.map((loss) => loss[key]),
  ]);
  const angles = losses.map(({ name }, i) => [`cosine with ${name}`, '', ...cosines[i].map(number)]);
  return [
    el('h2', '', `Step ${step.step}`),
    el('p', '', `${plural(step.samples, 'sample')}, at the weights of ${step.weights}.`),
    scrolling(
      `Losses of step ${step.step}`,
      table([['number', 'logged', ...names], ...settings, ...metrics, ...angles], 'numbers'),
    ),
    ...(shown.length > 0 ? [key()] : []),
    ...shown.map((sample) => sampleView(sample, names)),
  ];
}

function key(): HTMLElement {
  const entry = (className: string, text: string) =>
    el('span', '', el('span', `token ${className}`, 'token'), ` ${text}`);
  const [up, down] = [entry('', 'becomes likelier'), entry('', 'becomes less likely')];
  paint(up.firstElementChild as HTMLElement, -1);
  paint(down.firstElementChild as HTMLElement, 1);
  return el('p', 'key', up, down, entry('clipped', 'clipped'), entry('untrained', 'not trained on'));
}

function sampleView(
  { sample, group, problem, score, tokens, losses }: ShownSample,
  names: readonly string[],
): HTMLElement {
  const columns = losses.map((numbers, i) => {
    const most = numbers.grad.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    const spans = tokens.map(({ text, trained }, t) => {
      const clip = numbers.clipped[t];
      const span = el('span', `token ${clip ? 'clipped' : ''} ${trained ? '' : 'untrained'}`, text);
      paint(span, most > 0 ? numbers.grad[t] / most : 0);
      const facts = [
        `d loss / d logp ${number(numbers.grad[t])}`,
        `weight ${number(numbers.weight[t])}`,
        `advantage ${number(numbers.advantage[t])}`,
        `ratio ${number(numbers.ratio[t])}`,
        ...(clip ? [clip & 1 ? 'clipped' : 'clipped below'] : []),
      ];
      span.title = trained ? facts.join(', ') : 'not trained on';
      return span;
    });
    const head = el('header', 'loss', `${names[i]}: largest |d loss / d logp| ${number(most)}`);
    return el('article', '', head, el('div', 'message tokens', ...spans));
  });
  const heading = `Sample ${sample} of group ${group}, problem ${problem}, score ${number(score)}`;
  return el('section', '', el('h3', '', heading), el('div', 'cards', ...columns));
}

/**
 * Colours a token by its gradient.
 * @param share gradient as a fraction of the largest one, -1 to 1; a negative gradient raises the token's probability
 */
function paint(span: HTMLElement, share: number): void {
  if (share === 0) return;
  const percent = Math.round(8 + 32 * Math.abs(share));
  span.style.background = `color-mix(in srgb, var(${share < 0 ? '--good' : '--bad'}) ${percent}%, transparent)`;
}

function rewardTable(rewards: ReplayReport['rewards']): HTMLElement {
  const head = ['step', 'samples', 'as trained', 'new', 'correlation', 'another best', 'sign flips'];
  const rows = rewards.map((line) => [
    String(line.step),
    String(line.samples),
    ...[line.oldScore, line.newScore, line.correlation, line.bestChanged, line.signFlips].map(number),
  ]);
  return scrolling('Rewards', table([head, ...rows], 'numbers'));
}
