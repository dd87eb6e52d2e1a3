/** Figure 4.1, who wrote each token and which are trained, and figure 4.4, advantages of turns. */

import { short, signed } from '../../../src/ui/format.ts';
import { embedded, move, movedTo, numberOf } from '../kit/address.ts';
import { Figure, Select } from '../kit/figure.tsx';
import { AUTHORS, authoredTokens } from './authors.ts';
import { authorShares, outcomeTurns, TRAINED, turnAdvantages, UPDATED } from './stills.ts';
import { percent } from '../2-losses/stills.ts';

const SOURCE = `Recorded: ${UPDATED.command}, commit ${UPDATED.commit}, ${UPDATED.adapter}, ${UPDATED.date}.`;

const TRIES = UPDATED.groups.flatMap((group, g) => {
  const texts = group.tries.map(({ tokens }) => tokens.join(''));
  return group.tries
    .filter((_, i) => texts.indexOf(texts[i]) === i)
    .map((one) => {
      const answer = /#### *(-?[\d.]+)/.exec(one.tokens.join(''))?.[1] ?? 'none';
      return { group, one, name: `Group ${'AB'[g]}: answer ${answer}, ${one.reward === 1 ? 'right' : 'wrong'}` };
    });
});

/** Makes line breaks visible. */
const visible = (text: string): string => text.replaceAll('\n', '\u21b5\n');

/** Figure 4.1. */
export function MaskFigure() {
  const { group, one } = TRIES[Math.round(numberOf('try', 0, 0, TRIES.length - 1))];
  const asked = movedTo('trained') ?? 'model';
  const { name, by } = TRAINED[asked] ?? TRAINED['model'];
  const tokens = authoredTokens(group, one);
  const shares = authorShares(group, by);
  const counts = AUTHORS.map((author) => tokens.filter((token) => token.by === author && author !== 'prompt').length);
  const says = `Trained on ${name}: ${percent(shares.model)} of the group's pull is on the model's tokens, ${percent(shares.tool)} on the tool's, ${percent(shares.template)} on the template's.`;
  return (
    <Figure number="4.1" title="Who wrote what" says={says} source={SOURCE}>
      <div class="controls">
        <Select
          control="try"
          label="Try"
          initial="0"
          options={TRIES.map((shown, i) => ({ value: `${i}`, name: shown.name }))}
        />
        <Select
          control="trained"
          label="Train on"
          initial="model"
          options={Object.entries(TRAINED).map(([value, choice]) => ({ value, name: choice.name }))}
        />
      </div>
      <p class="authored" tabindex={0} role="group" aria-label="Tokens of the try, by their author">
        {tokens.map((token, t) => (
          <span key={t} class={`piece by-${token.by}${by.includes(token.by) ? ' trained' : ''}`}>
            {visible(token.text)}
          </span>
        ))}
      </p>
      <ul class="authors">
        {AUTHORS.map((author, a) => (
          <li key={author}>
            <span class={`piece by-${author}${by.includes(author) ? ' trained' : ''}`}>{author}</span>{' '}
            {author === 'prompt'
              ? 'the problem, never trained'
              : `${counts[a]} tokens, ${percent(shares[author])} of the pull`}
          </li>
        ))}
      </ul>
      <p class="note">Underlined: trained. The pull is that of the mean over tokens, before the first update.</p>
    </Figure>
  );
}

/** Returns the rewards of the turns, as the reader set them. */
function givenTurns(outcome: readonly number[][]): number[][] {
  const parts = movedTo('turns')?.split(',') ?? [];
  let at = 0;
  return outcome.map((turns) =>
    turns.map((own) => {
      const part = parts[at++] ?? '';
      const value = part === '' ? NaN : Number(part);
      return Number.isFinite(value) ? Math.min(1, Math.max(-1, value)) : own;
    }),
  );
}

/** Figure 4.4. */
export function TurnsFigure() {
  const group = UPDATED.groups[movedTo('group') === 'A' ? 0 : 1];
  const outcome = outcomeTurns(group);
  const rewards = givenTurns(outcome);
  const advantages = turnAdvantages(group, rewards);
  const set = (s: number, turn: number, to: number) =>
    move({
      turns: rewards
        .map((own, i) => own.map((r, j) => (i === s && j === turn ? to : r)))
        .flat()
        .join(','),
    });
  const best = advantages.reduce((most, { whole }, s) => (whole > advantages[most].whole ? s : most), 0);
  const says = `Try ${best + 1} has advantage ${signed(advantages[best].whole)} as a whole by GRPO. Turn by turn it has ${advantages[best].turns.map(signed).join(', ')}.`;
  return (
    <Figure
      number="4.4"
      title="Reward of each turn"
      says={says}
      source={`${SOURCE} This task pays at the end only, so at first the outcome is in the last turn.`}
    >
      <div class="controls">
        <Select
          control="group"
          label="Group"
          initial="B"
          resets={['turns']}
          options={[
            { value: 'A', name: 'A: 4 of 8 right' },
            { value: 'B', name: 'B: 1 of 8 right' },
          ]}
        />
      </div>
      <div class="scroll" tabindex={0} role="group" aria-label="Rewards and advantages of the turns">
        <table class="turn-table">
          <thead>
            <tr>
              <th>try</th>
              <th>turn</th>
              <th>reward</th>
              <th>turn_loo</th>
              <th>GRPO</th>
            </tr>
          </thead>
          <tbody>
            {rewards.flatMap((own, s) =>
              own.map((reward, turn) => (
                <tr key={`${s}-${turn}`}>
                  <td>{turn === 0 ? s + 1 : ''}</td>
                  <td>{turn + 1}</td>
                  <td>
                    <input
                      type="range"
                      min={-1}
                      max={1}
                      step={0.1}
                      value={reward}
                      aria-label={`Reward of try ${s + 1}, turn ${turn + 1}`}
                      aria-valuetext={short(reward)}
                      onInput={(event) => set(s, turn, Number(event.currentTarget.value))}
                    />
                    <output>{short(reward)}</output>
                  </td>
                  <td>{signed(advantages[s].turns[turn])}</td>
                  <td>{turn === 0 ? signed(advantages[s].whole) : ''}</td>
                </tr>
              )),
            )}
          </tbody>
        </table>
      </div>
      {movedTo('turns') !== undefined && embedded === null && (
        <button type="button" onClick={() => move({ turns: undefined })}>
          Put the rewards back
        </button>
      )}
    </Figure>
  );
}
