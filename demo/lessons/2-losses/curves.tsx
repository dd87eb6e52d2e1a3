/** Figure 2.1: losses as curves over the ratio, and a loss that the reader writes. */

import { signal, useSignal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import type { Rule as OpenRule } from '../../../src/extensions/modules/index.ts';
import { short, signed } from '../../../src/ui/format.ts';
import { isHidden, move, movedTo, numberOf } from '../kit/address.ts';
import type { Checked } from '../kit/checks.ts';
import { CodeField } from '../kit/exercise.tsx';
import { Figure, Select, Slider } from '../kit/figure.tsx';
import { type Curve, curveTokens, ownCurve } from './losses.ts';
import {
  DRAWN,
  drawnCurve,
  type DrawnLoss,
  type Numbers,
  PUBLISHED,
  pullPlot,
  ratioAt,
  ratiosOf,
  type Scale,
  SCALES,
  valuePlot,
} from './plots.ts';

/** The reader's own loss, which figure 2.1 draws and figure 2.2 has a column for. */
export const ownLoss = signal<OpenRule<'loss'> | undefined>(undefined);

/** Ids of the losses that figure 2.1 draws at first. */
const FIRST = 'grpo,cispo,sapo';

/** Returns the reader's numbers. */
function givenNumbers(): Numbers {
  const tau = movedTo('tau');
  return {
    advantage: numberOf('advantage', PUBLISHED.advantage, -3, 3),
    low: numberOf('low', PUBLISHED.low, 0, 0.95),
    high: numberOf('high', PUBLISHED.high, 0, 4),
    c: numberOf('c', PUBLISHED.c, 1.1, 10),
    wMax: numberOf('wMax', PUBLISHED.wMax, 1, 8),
    tau: tau === undefined ? undefined : numberOf('tau', 1, 0.1, 5),
  };
}

/** Returns the pull of a loss at one ratio as text; "held" if the loss pulls no token there although the advantage is not 0. */
const pullText = ({ pull, held }: Curve): string => (held[0] === 1 ? 'held' : signed(pull[0]));

/** Figure 2.1. */
export function RatioFigure() {
  const scale: Scale = movedTo('scale') === 'close' ? 'close' : 'wide';
  const { from, to } = SCALES[scale];
  const ratio = Math.exp(numberOf('log', scale === 'wide' ? Math.log(1.3) : 0, Math.log(from), Math.log(to)));
  const numbers = givenNumbers();
  const rule = ownLoss.value;
  const result = useSignal<Checked | undefined>(undefined);
  const own = useOwnCurves(rule, { scale, ratio, numbers, onError: (failed) => (result.value = failed) });
  const shown = (movedTo('show') ?? FIRST).split(',');
  const ratios = ratiosOf(scale);
  const losses: DrawnLoss[] = DRAWN.filter(({ id }) => shown.includes(id)).map(({ id, name }) => ({
    id,
    name,
    curve: drawnCurve(id, ratios, numbers),
  }));
  if (own) losses.push({ id: 'own', name: 'Yours', curve: own.curve });
  const at = (id: string): Curve => (id === 'own' ? own!.at : drawnCurve(id, [ratio], numbers));
  const ratioText = scale === 'wide' ? short(ratio) : ratio.toFixed(4);
  const said = losses.map(({ id, name }) => {
    const curve = at(id);
    if (curve.held[0] === 1) return `${name} holds the token`;
    return `${name} pulls ${signed(curve.pull[0])}`;
  });
  const says = `At ratio ${ratioText} and advantage ${signed(numbers.advantage)}: ${said.length > 0 ? said.join(', ') : 'no loss is drawn'}.`;
  const drag = (event: PointerEvent & { currentTarget: HTMLElement }) => {
    if (event.buttons !== 1) return;
    const { left, width } = event.currentTarget.querySelector('svg')!.getBoundingClientRect();
    move({ log: Math.log(ratioAt((event.clientX - left) / width, scale)).toFixed(4) });
  };
  return (
    <Figure
      number="2.1"
      title="The pull of a loss over the ratio"
      says={says}
      source="Computed by the library's own losses, for a token of probability 0.1 when it was sampled. The pull is minus the slope of the loss by the token's log-prob."
    >
      <div class="svg drag" onPointerDown={drag} onPointerMove={drag}>
        <div
          dangerouslySetInnerHTML={{
            __html: pullPlot(losses, scale, { advantage: numbers.advantage, ratio }, `Pull over the ratio. ${says}`),
          }}
        />
        <div
          class="pale"
          dangerouslySetInnerHTML={{
            __html: valuePlot(
              losses,
              scale,
              { ratio },
              'Value of each loss over the ratio, less its value at ratio 1.',
            ),
          }}
        />
      </div>
      <div class="controls">
        <Slider
          control="log"
          label="Ratio"
          value={Math.log(ratio)}
          least={Math.log(from)}
          most={Math.log(to)}
          step={scale === 'wide' ? 0.01 : 0.00005}
          shown={ratioText}
        />
        <Slider
          control="advantage"
          label="Advantage"
          value={numbers.advantage}
          least={-3}
          most={3}
          step={0.1}
          shown={signed(numbers.advantage)}
        />
        <Select
          control="scale"
          label="Ratios"
          initial="wide"
          resets={['log']}
          options={[
            { value: 'wide', name: '0.05 to 8' },
            { value: 'close', name: "0.998 to 1.002, GSPO's scale" },
          ]}
        />
      </div>
      <Losses shown={shown} at={at} own={own !== undefined} />
      <details class="fold">
        <summary>Change the numbers of a loss</summary>
        <NumberSliders numbers={numbers} />
      </details>
      {!isHidden('own') && <OwnLoss isDrawn={rule !== undefined} result={result} />}
    </Figure>
  );
}

function NumberSliders({ numbers }: { numbers: Numbers }) {
  const { low, high, c, wMax, tau } = numbers;
  return (
    <div class="controls">
      <Slider control="low" label="PPO, clip below" value={low} least={0} most={0.95} step={0.01} shown={short(low)} />
      <Slider control="high" label="PPO, clip above" value={high} least={0} most={4} step={0.01} shown={short(high)} />
      <Slider control="c" label="PPO, dual clip c" value={c} least={1.1} most={10} step={0.1} shown={short(c)} />
      <Slider
        control="wMax"
        label="CISPO, largest weight"
        value={wMax}
        least={1}
        most={8}
        step={0.1}
        shown={short(wMax)}
      />
      <Slider
        control="tau"
        label="SAPO, tau"
        value={tau ?? 1}
        least={0.1}
        most={5}
        step={0.05}
        shown={tau === undefined ? '1 and 1.05' : short(tau)}
      />
    </div>
  );
}

/** Checkboxes that select the losses to draw, each with the pull of its loss at the current ratio. */
function Losses({ shown, at, own }: { shown: readonly string[]; at: (id: string) => Curve; own: boolean }) {
  const toggle = (id: string) =>
    move({ show: (shown.includes(id) ? shown.filter((one) => one !== id) : [...shown, id]).join(',') });
  const swatch = (id: string) => (
    <svg class="swatch" viewBox="0 0 34 8" aria-hidden="true">
      <line class={`loss loss-${id}`} x1="0" y1="4" x2="34" y2="4" />
    </svg>
  );
  return (
    <ul class="losses">
      {DRAWN.map(({ id, name, note }) => (
        <li key={id}>
          <label class="choice">
            <input type="checkbox" checked={shown.includes(id)} onChange={() => toggle(id)} />
            {swatch(id)}
            <span>
              <b>{name}</b> <span class="note">{note}</span>
            </span>
          </label>
          <span class="pull-at">{shown.includes(id) ? pullText(at(id)) : ''}</span>
        </li>
      ))}
      {own && (
        <li>
          <span class="choice own">
            {swatch('own')} <b>Yours</b>
          </span>
          <span class="pull-at">{pullText(at('own'))}</span>
        </li>
      )}
    </ul>
  );
}

const START = `// Called for every token. The update makes the loss smaller.
//   advantage, ratio, logProb, oldLogProb, clipLow, clipHigh
// Return a number, or { loss, grad } with grad = d loss / d logProb.
export function loss({ advantage, ratio, clipLow, clipHigh }) {
  const clipped = Math.min(Math.max(ratio, 1 - clipLow), 1 + clipHigh);
  return Math.max(-advantage * ratio, -advantage * clipped);
}
`;

/** Maximum length of code that is stored in the address. */
const LONGEST = 4000;

interface OwnCurves {
  curve: Curve;
  /** A curve with a single ratio, that of the handle. */
  at: Curve;
}

/** Runs the reader's loss whenever the loss, or a number that it reads, changes. */
function useOwnCurves(
  rule: OpenRule<'loss'> | undefined,
  {
    scale,
    ratio,
    numbers: { advantage, low, high },
    onError,
  }: {
    scale: Scale;
    ratio: number;
    numbers: Numbers;
    onError: (failed: Checked) => void;
  },
): OwnCurves | undefined {
  const [curves, setCurves] = useState<OwnCurves | undefined>(undefined);
  useEffect(() => {
    if (!rule) {
      setCurves(undefined);
      return;
    }
    let isCurrent = true;
    const ratios = [...ratiosOf(scale), ratio];
    rule
      .run(curveTokens(ratios, advantage, { clipRatioLow: low, clipRatioHigh: high }))
      .then((losses) => {
        if (!isCurrent) return;
        const all = ownCurve(losses, advantage);
        const part = (begin: number, end?: number): Curve => ({
          loss: all.loss.slice(begin, end),
          pull: all.pull.slice(begin, end),
          held: all.held.slice(begin, end),
        });
        setCurves({ curve: part(0, -1), at: part(-1) });
      })
      .catch((error: unknown) => {
        if (isCurrent) onError(failure(error));
      });
    return () => {
      isCurrent = false;
    };
  }, [rule, scale, ratio, advantage, low, high]);
  return rule && curves;
}

/** Returns the sandbox's error message about a loss that fails. */
export function failure(error: unknown): Checked {
  const { line, column, message } = error as { line?: number; column?: number; message: string };
  return { ok: false, says: line === undefined ? message : `Line ${line}: ${message}`, line, column };
}

interface OwnLossProps {
  isDrawn: boolean;
  result: { value: Checked | undefined };
}

function replaceOwn(rule: OpenRule<'loss'> | undefined): void {
  ownLoss.peek()?.close();
  ownLoss.value = rule;
}

/** The reader's loss as code, which figure 2.1 draws. */
function OwnLoss({ isDrawn, result }: OwnLossProps) {
  const given = movedTo('code');
  const code = useSignal(given ?? START);
  const open = useSignal(given !== undefined);
  const draw = async () => {
    try {
      const { Rule } = await import('../../../src/extensions/modules/index.ts');
      const rule = await Rule.open('loss', code.peek());
      result.value = {
        ok: true,
        says: 'Drawn with the others, and a column of figure 2.2. Change a number and draw it again.',
      };
      move({ code: code.peek().length <= LONGEST ? code.peek() : undefined });
      replaceOwn(rule);
    } catch (error) {
      result.value = failure(error);
    }
  };
  const remove = () => {
    result.value = undefined;
    move({ code: undefined });
    replaceOwn(undefined);
  };
  useEffect(() => {
    if (given !== undefined) void draw();
  }, []);
  return (
    <details class="fold" open={open.value} onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>Write a loss yourself</summary>
      {open.value && (
        <div
          onKeyDown={(event) => {
            if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
            event.preventDefault();
            void draw();
          }}
        >
          <CodeField label="Code of the loss" code={code} result={result.value} />
          <div class="buttons">
            <button type="button" class="primary" onClick={() => void draw()}>
              Draw it
            </button>
            {isDrawn && (
              <button type="button" onClick={remove}>
                Take it out
              </button>
            )}
            <span class="note">or Ctrl+Enter. The address of this page has the code: copy it to share the loss.</span>
          </div>
          <p class={`result ${result.value?.ok === false ? 'wrong' : ''}`} role="status">
            {result.value?.says}
          </p>
        </div>
      )}
    </details>
  );
}
