/** Figure 4.1, who wrote each token and which are trained, and figure 4.4, advantages of turns. */

import { short, signed } from '../../../src/ui/format.ts';
import { embedded, move, movedTo, numberOf } from '../kit/address.ts';
import { Figure, namesOf, Select } from '../kit/figure.tsx';
import { AUTHORS, authoredTokens } from './authors.ts';
import { authorShares, GAMES, RECORDED, TRAINED, turnAdvantages, UPDATED } from './stills.ts';
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
        <Select control="trained" label="Train on" initial="model" options={namesOf(TRAINED)} />
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

/** Index of the first game that the model won. */
const WON = GAMES.findIndex(({ end }) => end === 'won');
/** Largest number of turns in a game. */
const TURNS = Math.max(...GAMES.map(({ turnRewards }) => turnRewards.length));

/** Returns the rewards of the turns in each game, as set by the reader. */
function givenTurns(): number[][] {
  const parts = movedTo('turns')?.split(',') ?? [];
  let at = 0;
  return GAMES.map(({ turnRewards }) =>
    turnRewards.map((own) => {
      const part = parts[at++] ?? '';
      const value = part === '' ? NaN : Number(part);
      return Number.isFinite(value) ? Math.min(1, Math.max(-1, value)) : own;
    }),
  );
}

/** Figure 4.4. */
export function TurnsFigure() {
  const rewards = givenTurns();
  const advantages = turnAdvantages(rewards);
  const set = (s: number, turn: number, to: number) =>
    move({
      turns: rewards
        .map((own, i) => own.map((r, j) => (i === s && j === turn ? to : r)))
        .flat()
        .join(','),
    });
  const game = Math.round(numberOf('game', WON, 0, GAMES.length - 1));
  const { moves, end } = GAMES[game];
  const { turns, whole } = advantages[game];
  const says = `Game ${game + 1}, ${end}: every move has advantage ${signed(whole)} by GRPO. Turn by turn they have ${turns.map(signed).join(', ')}.`;
  return (
    <Figure
      number="4.4"
      title="Reward of each turn"
      says={says}
      source={`Recorded: ${RECORDED.game.command}, commit ${RECORDED.game.commit}, ${RECORDED.adapter}. The model moves nearly at random.`}
    >
      <div class="scroll" tabindex={0} role="group" aria-label="Rewards and advantages of the turns">
        <table class="turn-table">
          <thead>
            <tr>
              <th>game</th>
              {Array.from({ length: TURNS }, (_, turn) => (
                <th key={turn}>turn {turn + 1}</th>
              ))}
              <th>GRPO</th>
            </tr>
          </thead>
          <tbody>
            {rewards.map((own, s) => (
              <tr key={s} class={s === game ? 'chosen' : ''}>
                <td>
                  {s + 1}: {GAMES[s].end}
                </td>
                {Array.from({ length: TURNS }, (_, turn) =>
                  turn < own.length ? (
                    <td key={turn}>
                      <span>
                        pays <output>{short(own[turn])}</output>
                      </span>
                      <input
                        type="range"
                        min={-1}
                        max={1}
                        step={0.1}
                        value={own[turn]}
                        aria-label={`Reward of game ${s + 1}, turn ${turn + 1}`}
                        aria-valuetext={short(own[turn])}
                        onInput={(event) => set(s, turn, Number(event.currentTarget.value))}
                      />
                      <b>{signed(advantages[s].turns[turn])}</b>
                    </td>
                  ) : (
                    <td key={turn} />
                  ),
                )}
                <td>
                  <b>{signed(advantages[s].whole)}</b>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="note">Bold: the advantage of the turn by turn_loo, and of the whole game by GRPO.</p>
      {movedTo('turns') !== undefined && embedded === null && (
        <button type="button" onClick={() => move({ turns: undefined })}>
          Put the rewards back
        </button>
      )}
      <div class="controls">
        <Select
          control="game"
          label="Show game"
          initial={`${WON}`}
          options={GAMES.map((one, i) => ({ value: `${i}`, name: `${i + 1}: ${one.end}` }))}
        />
      </div>
      <ol class="boards">
        <li>
          <pre>{RECORDED.game.first.replace('Play X.\n', '')}</pre>
          <span class="note">start</span>
        </li>
        {moves.map(({ move: written, reply }, turn) => (
          <li key={turn}>
            <pre>{/(?:[1-9XO]{3}\n){2}[1-9XO]{3}/.exec(reply)?.[0]}</pre>
            <span class="note">
              turn {turn + 1}: {written.trim() === '' ? 'nothing' : written}
              {reply.startsWith('Not') ? ', illegal' : ''}
            </span>
          </li>
        ))}
      </ol>
    </Figure>
  );
}
