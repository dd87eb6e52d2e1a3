/** Figure 2.2: the pull of five losses on every token of a real try, after some updates on that try. */

import { signal, useComputed, useSignal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { short, signed } from '../../../src/ui/format.ts';
import { spoken, type TokenView } from '../../views/inspector/measures.ts';
import { Tokens } from '../../views/inspector/tokens.tsx';
import '../../views/inspector/inspector.css';
import { embedded, isHidden, movedTo, numberOf } from '../kit/address.ts';
import { Figure, LiveButton, Select } from '../kit/figure.tsx';
import { isPredicted } from '../kit/predict.tsx';
import { ownLoss } from './curves.tsx';
import { batchTokens, type LossOnTokens, ownOnTokens } from './losses.ts';
import { PUBLISHED } from './plots.ts';
import { COLUMN_NAMES, COLUMNS, MAX_LENGTH, percent, pullsAfter, RECORDED, rowsAfter, shareText } from './stills.ts';
import type { TokenGroup, TokenTry } from './updates.ts';

/** Seconds of the first press on two CPU cores without other work (`npm run bench:page -- --lesson 2-losses`). */
const COLD_S = 10;

/** Groups of tries that were sampled, and trained on, in this tab. */
const drawn = signal<TokenGroup[] | undefined>(undefined);

interface ShownTry extends TokenTry {
  /** Row of the try in the batch. */
  row: number;
  name: string;
}

/** Returns the tries of the groups without duplicates: equal tries of a group are shown once. */
function differentTries(groups: readonly TokenGroup[]): ShownTry[] {
  let row = 0;
  return groups.flatMap(({ tries }, g) => {
    const seen = new Set<string>();
    return tries.flatMap((one) => {
      const place = row++;
      const text = one.tokens.join('');
      if (seen.has(text)) return [];
      seen.add(text);
      const count = tries.filter(({ tokens }) => tokens.join('') === text).length;
      const end = /#### *(-?[\d.,]+)/.exec(text)?.[1] ?? 'none';
      const name = `Group ${'AB'[g]}: answer ${end}, ${one.reward === 1 ? 'right' : 'wrong'} (${count} of ${tries.length} tries)`;
      return [{ ...one, row: place, name }];
    });
  });
}

/** Returns the tokens of a try, coloured by the pull of a loss. `scale` is the number of trained tokens of the batch. */
function tokensOf(shown: ShownTry, { tokens }: LossOnTokens, scale: number): TokenView[] {
  return shown.tokens.map((text, t): TokenView => {
    const [grad, advantage] = [tokens.grad[shown.row][t], tokens.advantage[shown.row][t]];
    const isTrained = shown.mask[t] === 1;
    if (!isTrained) return { id: t, text, drawn: false, trained: false };
    const held = grad === 0 && advantage !== 0;
    return { id: t, text, drawn: true, trained: true, gradient: -grad * scale, clip: held ? Math.sign(advantage) : 0 };
  });
}

const pullText = ({ drawn: isDrawn, clip, gradient = 0 }: TokenView): string =>
  !isDrawn ? 'not trained' : clip !== 0 ? 'held' : signed(gradient);

/** Figure 2.2. */
export function TokensFigure() {
  const groups = drawn.value ?? RECORDED.groups;
  const revealed = embedded !== null || isPredicted('2.2');
  const asked = RECORDED.updates.indexOf(numberOf('updates', 0, 0, 8));
  const u = revealed && asked > 0 ? asked : 0;
  const tries = differentTries(groups);
  const shown = tries[Math.round(numberOf('try', 0, 0, tries.length - 1))];
  const isCommon = movedTo('colours') === 'common';
  const own = useOwnPulls(groups, u);
  const pulls = [...pullsAfter(groups, u), ...(own ? [own] : [])];
  const named = (name: string) => COLUMN_NAMES[name] ?? 'Yours';
  const chosen = (pulls.find(({ name }) => name === movedTo('loss')) ?? pulls[0]).name;
  const count = groups.flatMap(({ tries: all }) => all.flatMap(({ mask }) => mask)).reduce((sum, m) => sum + m, 0);
  const views = pulls.map((of) => tokensOf(shown, of, count));
  const selected = useSignal(0);
  const hovered = useSignal<number | undefined>(undefined);
  const at = useComputed(() => hovered.value ?? selected.value).value;
  const place = Math.min(at, shown.tokens.length - 1);
  const size = (all: readonly TokenView[]) => Math.max(1e-9, ...all.map(({ gradient = 0 }) => Math.abs(gradient)));
  const common = size(views.flat());
  const ratio = Math.exp(shown.logProbs[u][place] - shown.logProbs[0][place]);
  const word = `Token ${place + 1} (${spoken(views[0][place])})`;
  const says = !revealed
    ? 'Predict first, or look without a guess. Then the pulls appear.'
    : views[0][place].drawn
      ? `${word}: ratio ${short(ratio)}. ${pulls.map(({ name }, i) => `${named(name)} ${pullText(views[i][place])}`).join(', ')}.`
      : `${word} was written by a tool or the template, so no loss pulls it.`;
  return (
    <Figure
      number="2.2"
      title="The losses on one try"
      says={says}
      source={
        drawn.value
          ? `Sampled and updated in this tab, by the shipped model, at learning rate ${RECORDED.rate}.`
          : `Recorded: ${RECORDED.command}, commit ${RECORDED.commit}, ${RECORDED.adapter}, ${RECORDED.date}. Updates with the recipe's loss, learning rate ${RECORDED.rate}.`
      }
    >
      <div class="controls">
        <Select
          control="updates"
          label="Updates since sampling"
          initial="0"
          options={RECORDED.updates.map((n) => ({ value: `${n}`, name: `${n}` }))}
        />
        <Select control="try" label="Try" initial="0" options={tries.map(({ name }, i) => ({ value: `${i}`, name }))} />
        <Select
          control="colours"
          label="Colours"
          initial="own"
          options={[
            { value: 'own', name: 'each loss on its own scale' },
            { value: 'common', name: 'all losses on one scale' },
          ]}
        />
        <div class="narrow">
          <Select
            control="loss"
            label="Loss"
            initial={COLUMNS[0]}
            options={pulls.map(({ name }) => ({ value: name, name: named(name) }))}
          />
        </div>
      </div>
      {revealed && (
        <div class="by-loss inspector">
          {pulls.map(({ name, heldShare, rightShare, effectiveShare }, i) => (
            <section key={name} aria-label={named(name)} class={name === chosen ? 'one-loss chosen' : 'one-loss'}>
              <h4>{named(name)}</h4>
              <Tokens
                tokens={views[i]}
                places={views[i].map(({ gradient }) =>
                  gradient === undefined ? undefined : gradient / (isCommon ? common : size(views[i])),
                )}
                values={views[i].map(pullText)}
                name="Pull"
                selected={selected}
                hovered={hovered}
              />
              <dl>
                <div>
                  <dt>tokens held</dt>
                  <dd>{percent(heldShare)}</dd>
                </div>
                <div>
                  <dt>pull on right tries</dt>
                  <dd>{shareText(rightShare)}</dd>
                </div>
                <div>
                  <dt>effective share</dt>
                  <dd>{shareText(effectiveShare)}</dd>
                </div>
              </dl>
            </section>
          ))}
        </div>
      )}
      <p class="note">
        Solid underline: made more likely. Dotted: less likely. Double line above: held. Grey: written by a tool. The
        three numbers are over the {count} trained tokens of both groups. Effective share: 100% if all tokens pull
        equally hard.{' '}
        {own
          ? 'Yours is the loss of figure 2.1, as a mean over tokens.'
          : 'A loss that you write in figure 2.1 gets a column here.'}
      </p>
      {!isHidden('live') && (
        <div class="buttons">
          <LiveButton
            id="updates"
            label="Make the updates here"
            coldSeconds={COLD_S}
            run={update}
            done="Updated"
            onRecorded={drawn.value ? () => (drawn.value = undefined) : undefined}
          />
        </div>
      )}
    </Figure>
  );
}

/** Returns the pull of the reader's loss on all tokens; undefined without such a loss, or if the loss fails on these tokens. */
function useOwnPulls(groups: readonly TokenGroup[], u: number): LossOnTokens | undefined {
  const rule = ownLoss.value;
  const [pulls, setPulls] = useState<LossOnTokens | undefined>(undefined);
  useEffect(() => {
    let isCurrent = true;
    const show = (next: LossOnTokens | undefined) => isCurrent && setPulls(next);
    const { rows, logProbs } = rowsAfter(groups, u);
    rule
      ?.run(batchTokens(rows, logProbs, [PUBLISHED.low, PUBLISHED.high]))
      .then((losses) => show(ownOnTokens(rows, losses, { logProbs, maxResponseLength: MAX_LENGTH })))
      .catch(() => show(undefined)); // figure 2.1 says why
    return () => {
      isCurrent = false;
    };
  }, [rule, groups, u]);
  return rule && pulls;
}

/** Trains the model of this tab on the same two groups as the recording. */
async function update(signal: AbortSignal, say: (text: string) => void): Promise<string> {
  const [{ live }, { updatesOn }] = await Promise.all([import('../kit/live.ts'), import('./updates.ts')]);
  const onUpdate = (updates: number) => say(`${updates} of ${RECORDED.updates.at(-1)} updates done.`);
  const onTry = (tries: number) => say(`${tries} tries sampled.`);
  const options = { problems: [0, 1], signal, onTry, onUpdate };
  const groups = await live(({ config, engine, task }) => updatesOn({ config, engine, task }, options), signal);
  if (!groups) return '';
  drawn.value = groups;
  return JSON.stringify(groups) === JSON.stringify(RECORDED.groups)
    ? 'Every log-prob is the recorded one.'
    : 'Some log-probs differ from the recorded ones: on another GPU, rounding differs.';
}
