/** Shows how the time was spent: one bar over all steps so far, divided by phase. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import { duration } from '../../../src/ui/format.ts';
import { sumOf } from '../../state/measured.ts';
import { history } from '../../state/page.ts';
import { Term } from '../term.tsx';
import './timeBar.css';

/** Phases in order. Tools and rewards run during `generate`. */
const PHASES = [
  { name: 'generate', keys: ['timing_s/gen'] },
  { name: 'log-probs', keys: ['timing_s/old_log_prob', 'timing_s/ref'] },
  { name: 'update', keys: ['timing_s/update_actor'] },
  { name: 'sync', keys: ['timing_s/sync'] },
  { name: 'evaluate', keys: ['timing_s/testing'] },
] as const;

/** Draws the bar of phases. */
export function TimeBar() {
  const lines = history.value;
  return (
    <>
      <h2>Where the time goes</h2>
      {lines.length > 0 ? <Bar lines={lines} /> : <p class="empty">Shown after the first step.</p>}
    </>
  );
}

function Bar({ lines }: { lines: readonly Metrics[] }) {
  const parts = partsOf(lines);
  const total = parts.reduce((sum, { seconds }) => sum + seconds, 0);
  const shown = parts.filter(({ seconds }) => seconds / total >= 0.001);
  return (
    <>
      <div class="bar">
        {shown.map(({ name, seconds }) => (
          <span
            key={name}
            class={`piece phase-${name}`}
            style={{ flexGrow: seconds / total }}
            title={`${name}: ${duration(seconds)}`}
          >
            {seconds / total > 0.12 && name}
          </span>
        ))}
      </div>
      <ul class="legend">
        {shown.map(({ name, seconds }) => (
          <li key={name}>
            <i class={`key phase-${name}`} />
            <Term word={name} />
            <b>{duration(seconds)}</b>
            {`${((100 * seconds) / total).toFixed(0)}%`}
          </li>
        ))}
      </ul>
      <p class="note">
        {`Within generate: tools ${duration(sumOf(lines, 'timing_s/tools'))}, ` +
          `rewards ${duration(sumOf(lines, 'timing_s/reward'))}.`}
      </p>
    </>
  );
}

function partsOf(lines: readonly Metrics[]): { name: (typeof PHASES)[number]['name'] | 'rest'; seconds: number }[] {
  const known = PHASES.map(({ name, keys }) => ({
    name,
    seconds: keys.reduce((total, key) => total + sumOf(lines, key), 0),
  }));
  const inSteps = known.reduce((total, { name, seconds }) => total + (name === 'evaluate' ? 0 : seconds), 0);
  return [...known, { name: 'rest', seconds: Math.max(0, sumOf(lines, 'timing_s/step') - inSteps) }];
}
