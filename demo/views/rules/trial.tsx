/** Scores that a reward would have given to the shown tries, next to their actual scores. */

import { short } from '../../../src/ui/format.ts';
import { trial } from '../../actions/openRules.ts';

const SHOWN = 8;

/** Lists the scores of a tested reward. */
export function Trial() {
  const tried = trial.value;
  if (!tried || tried.tries.length === 0)
    return (
      <p class="note">
        Choose a preset, or press Test: what the reward would have paid for the tries on the screen is shown here.
      </p>
    );
  const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;
  const paid = tried.tries.map(({ score }) => score ?? NaN).filter((score) => !Number.isNaN(score));
  const { step } = tried.tries[0];
  const rows = tried.tries.slice(0, SHOWN);
  const more = tried.tries.length - rows.length;
  return (
    <table class="trial">
      <caption>
        {step === 0 ? 'Tries before training' : `Tries of step ${step}`}: mean reward <b>{short(mean(tried.scores))}</b>{' '}
        with this rule, <b>{paid.length > 0 ? short(mean(paid)) : 'none'}</b> as trained
      </caption>
      <thead>
        <tr>
          <th scope="col">Try</th>
          <th scope="col">Verdict</th>
          <th scope="col">Calls</th>
          <th scope="col">Tokens</th>
          <th scope="col">Trained reward</th>
          <th scope="col">New reward</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ acc, numToolCalls, responseTokens, score }, i) => (
          <tr key={i}>
            <th scope="row">{i + 1}</th>
            <td>{acc === 1 ? 'correct' : 'wrong'}</td>
            <td>{numToolCalls}</td>
            <td>{responseTokens}</td>
            <td>{score === null ? 'none' : short(score)}</td>
            <td>
              <b>{short(tried.scores[i])}</b>
            </td>
          </tr>
        ))}
      </tbody>
      {more > 0 && (
        <tfoot>
          <tr>
            <td colSpan={6}>and {more} more</td>
          </tr>
        </tfoot>
      )}
    </table>
  );
}
