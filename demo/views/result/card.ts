/** Content of a result card, as text and drawn. Contains only measured values. */

import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import type { ModelConfig } from '../../../src/model/config.ts';
import { parameterCount } from '../../../src/model/params.ts';
import { plural } from '../../../src/ui/format.ts';
import type { Measured } from '../../state/measured.ts';
import { taskTitle } from '../../state/recipes.ts';
import { methodOf } from '../../state/settings/fields.ts';
import type { ComparedAnswer, Comparison } from '../../state/tries/comparison.ts';

interface Source {
  config: TrainConfig;
  measured: Measured;
  adapter: string;
  /** Shape of the model; undefined if the engine is closed. */
  model: ModelConfig | undefined;
  /** Two answers to compare; undefined if the page has not seen both evaluations. */
  comparison: Comparison | undefined;
  /** Settings and rules that were changed during the run; '' = none. */
  changed: string;
}

export interface CardContent {
  title: string;
  changed: string;
  /** pass@1 before and after training, or only after. */
  numbers: string[];
  caption: string;
  facts: string[];
  rewards: Measured['rewards'];
  comparison: Comparison | undefined;
}

/** Returns the content of a run's card. */
export function contentOf({ config, measured, adapter, model, comparison, changed }: Source): CardContent {
  const { before, after, steps, seconds, trainedTokens, rewards } = measured;
  const size = model && `${millions(parameterCount(model))} parameters`;
  return {
    title: `${taskTitle(config)}, by ${methodOf(config)}`,
    changed,
    numbers: [...(before === undefined ? [] : [before.toFixed(2)]), after!.value.toFixed(2)],
    caption:
      `pass@1 on held-out problems, ${before === undefined ? '' : 'before training and '}after ${plural(after!.step, 'step')}`.trim(),
    facts: [
      ...(size ? [size] : []),
      plural(steps, 'step'),
      ...(seconds > 0 ? [seconds >= 90 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds)} s`] : []),
      ...(trainedTokens > 0 ? [`${trainedTokens.toLocaleString('en')} tokens trained`] : []),
      `seed ${config.seed}`,
      ...(adapter ? [adapter] : []),
    ],
    rewards,
    comparison,
  };
}

const millions = (n: number): string =>
  n >= 1e6 ? `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} M` : `${Math.round(n / 1000)} k`;

/** Returns a card's content as text. */
export function textOf({ title, changed, numbers, caption, facts, comparison }: CardContent): string {
  return [
    `webgrpo: ${title}`,
    ...(changed === '' ? [] : [changed]),
    `${numbers.join(' \u2192 ')} ${caption}`,
    facts.join(', '),
    ...(comparison
      ? [
          '',
          askedOf(comparison),
          ...[comparison.before, comparison.after].map((answer) => `${verdictOf(answer)}: ${answer.text}`),
        ]
      : []),
  ].join('\n');
}

const askedOf = ({ number, problem }: Comparison): string => `Held-out problem ${number}: ${problem}`;

const verdictOf = ({ step, right }: ComparedAnswer): string =>
  `${step === 0 ? 'Before training' : `After step ${step}`} (${right ? 'correct' : 'wrong'})`;

/** Size of the picture in pixels. A card without answers is shorter. */
const [WIDTH, HEIGHT, SHORT, EDGE] = [1200, 630, 364, 56];

/** Draws the card with the current colours and fonts of the page, light or dark. */
export function drawCard(canvas: HTMLCanvasElement, content: CardContent): void {
  canvas.height = content.comparison ? HEIGHT : SHORT;
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const pen = canvas.getContext('2d')!;
  const font = (size: number, weight = 400, family = '--font') => {
    pen.font = `${weight} ${size}px ${colour(family)}`;
  };
  const write = (text: string, x: number, y: number, fill: string) => {
    pen.fillStyle = colour(fill);
    pen.fillText(text, x, y);
  };
  pen.textBaseline = 'alphabetic';
  pen.fillStyle = colour('--panel');
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  pen.fillStyle = colour('--accent');
  pen.fillRect(0, 0, WIDTH, 10);

  font(30, 600);
  write('webgrpo', EDGE, 74, '--accent');
  const after = EDGE + pen.measureText('webgrpo').width + 18;
  font(30);
  write(content.title, after, 74, '--text');

  if (content.changed !== '') {
    font(18, 600);
    const [band] = lines(pen, content.changed, CHART_X - EDGE - 2 * PAD, 1);
    pen.fillStyle = colour('--bad-soft');
    pen.fillRect(EDGE, 88, pen.measureText(band).width + 2 * PAD, 30);
    write(band, EDGE + PAD, 109, '--bad');
  }
  const [one, two] = content.numbers;
  const parts = two === undefined ? [one] : [one, '\u2192', two];
  const colours =
    two === undefined ? ['--text'] : ['--muted', '--muted', Number(two) > Number(one) ? '--good' : '--text'];
  const widthOf = (text: string, size: number, weight: number) => {
    font(size, weight);
    return pen.measureText(text).width;
  };
  const sizes = fittingSizes(parts, content.changed === '' ? 108 : 92, widthOf); // below the band
  let x = EDGE;
  sizes.forEach(({ size, weight, width }, i) => {
    font(size, weight);
    write(parts[i], x, weight === 700 ? 196 : 188, colours[i]);
    x += width + SPACE;
  });
  font(22);
  lines(pen, content.caption, 560, 2).forEach((line, i) => write(line, EDGE, 238 + 28 * i, '--muted'));
  drawRewards(pen, content.rewards, { x: CHART_X, y: 112, width: WIDTH - EDGE - CHART_X, height: 142 }, colour, font);

  font(22, 500);
  lines(pen, content.facts.join('  \u00b7  '), WIDTH - 2 * EDGE, 2).forEach((line, i) =>
    write(line, EDGE, 312 + 30 * i, '--text'),
  );
  const { comparison } = content;
  if (!comparison) return;
  font(20);
  const asked = lines(pen, askedOf(comparison), WIDTH - 2 * EDGE, 2);
  asked.forEach((line, i) => write(line, EDGE, 378 + 26 * i, '--muted'));
  const [width, y] = [(WIDTH - 2 * EDGE - 24) / 2, 368 + 26 * asked.length];
  [comparison.before, comparison.after].forEach((answer, i) =>
    drawAnswer(pen, answer, { x: EDGE + i * (width + 24), y, width, height: HEIGHT - y - 32 }, colour, font),
  );
}

/** In pixels: left edge of the chart of rewards, space between the numbers and the arrow, and padding of the band with the changes. */
const [CHART_X, SPACE, PAD] = [680, 26, 10];

/**
 * Returns the largest font sizes with which the two numbers and the arrow between them fit in front of the chart. Fonts differ in width.
 */
function fittingSizes(
  parts: readonly string[],
  largest: number,
  widthOf: (text: string, size: number, weight: number) => number,
) {
  for (let size = largest; ; size -= 4) {
    const sized = parts.map((text) => {
      const [its, weight] = text === '\u2192' ? [(size * 2) / 3, 400] : [size, 700];
      return { size: its, weight, width: widthOf(text, its, weight) };
    });
    const whole = sized.reduce((sum, { width }) => sum + width + SPACE, 0);
    if (size <= 40 || EDGE + whole <= CHART_X) return sized;
  }
}

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}
type Colour = (name: string) => string;
type Font = (size: number, weight?: number, family?: string) => void;

function drawRewards(
  pen: CanvasRenderingContext2D,
  rewards: Measured['rewards'],
  { x, y, width, height }: Box,
  colour: Colour,
  font: Font,
): void {
  font(18);
  pen.fillStyle = colour('--muted');
  pen.fillText('mean reward per step', x, y);
  if (rewards.length < 2) return;
  const values = rewards.map(({ value }) => value);
  const [low, high] = [Math.min(0, ...values), Math.max(1, ...values)];
  const [first, last] = [rewards[0].step, rewards[rewards.length - 1].step];
  const top = y + 16;
  const across = (step: number) => x + 40 + ((step - first) / (last - first)) * (width - 44);
  const up = (value: number) => top + height - ((value - low) / (high - low)) * (height - 6);
  pen.strokeStyle = colour('--line');
  pen.lineWidth = 2;
  for (const value of [low, high]) {
    pen.beginPath();
    pen.moveTo(x + 40, up(value));
    pen.lineTo(x + width, up(value));
    pen.stroke();
    pen.fillText(String(Number(value.toFixed(1))), x, up(value) + 6);
  }
  pen.strokeStyle = colour('--accent');
  pen.lineWidth = 4;
  pen.lineJoin = 'round';
  pen.beginPath();
  for (const { step, value } of rewards) pen.lineTo(across(step), up(value));
  pen.stroke();
}

function drawAnswer(
  pen: CanvasRenderingContext2D,
  answer: ComparedAnswer,
  { x, y, width, height }: Box,
  colour: Colour,
  font: Font,
): void {
  pen.fillStyle = colour('--page');
  pen.beginPath();
  pen.roundRect(x, y, width, height, 12);
  pen.fill();
  pen.fillStyle = colour(answer.right ? '--good' : '--bad');
  font(18, 600);
  pen.fillText(verdictOf(answer), x + 18, y + 32);
  pen.fillStyle = colour('--text');
  // A short answer is drawn larger. A long one is drawn small, and truncated.
  const [start, room] = [y + 70, width - 36];
  for (let size = 29; size >= 17; size -= 4) {
    font(size, 400, '--mono');
    const most = Math.max(1, Math.floor((y + height - 12 - start) / (1.35 * size)) + 1);
    const all = lines(pen, answer.text, room, Infinity);
    if (size > 17 && (all.length > most || all.some((line) => pen.measureText(line).width > room))) continue;
    const shown = lines(pen, answer.text, room, most);
    shown.forEach((line, i) => pen.fillText(line, x + 18, start + 1.35 * size * i));
    break;
  }
}

/** Breaks text into lines that fit a width. Text beyond `most` lines is replaced by an ellipsis. */
function lines(pen: CanvasRenderingContext2D, text: string, width: number, most: number): string[] {
  const made: string[] = [];
  let line = '';
  for (const word of text.split(/\s+/).flatMap((whole) => whole.match(/.{1,40}/gsu) ?? [])) {
    const longer = line === '' ? word : `${line} ${word}`;
    if (pen.measureText(longer).width <= width) {
      line = longer;
      continue;
    }
    made.push(line);
    line = word;
  }
  made.push(line);
  if (made.length <= most) return made;
  const kept = made.slice(0, most);
  while (pen.measureText(`${kept[most - 1]} \u2026`).width > width) kept[most - 1] = kept[most - 1].slice(0, -1);
  kept[most - 1] += ' \u2026';
  return kept;
}
