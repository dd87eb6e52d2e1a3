/** The three parts of a step: try, compare, nudge. During a run, the current part is marked. */

import type { Phase } from '../../../src/grpo/types.ts';
import { triesOfStep } from '../../state/progress.ts';
import { config, phase, scored, stepsDone } from '../../state/page.ts';
import { replay } from '../../state/runs.ts';
import { active } from '../../state/stage.ts';

const PARTS = [
  { name: 'Try', hint: 'The model answers each problem several times.' },
  { name: 'Compare', hint: 'Each try is compared with the other tries at its problem.' },
  { name: 'Nudge', hint: 'The update makes better tries more likely and worse ones less likely.' },
] as const;

const PART_OF: Readonly<Record<Phase, (typeof PARTS)[number]['name'] | undefined>> = {
  generate: 'Try',
  tools: 'Try',
  reward: 'Compare',
  'log-probs': 'Compare',
  update: 'Nudge',
  sync: 'Nudge',
  validate: undefined,
};

/** Shows the three parts, and how many tries of the step in progress are scored. */
export function Loop() {
  const now = active.value && phase.value ? PART_OF[phase.value] : undefined;
  const of = config.value;
  const isTrying = now === 'Try' && of;
  const again = replay.value;
  const done = again ? again.from + again.steps.length : stepsDone.value;
  return (
    <div class="loop">
      <ol>
        {PARTS.map(({ name, hint }) => (
          <li key={name} title={hint} aria-current={name === now ? 'step' : undefined}>
            {name}
          </li>
        ))}
      </ol>
      <span class="coming">
        {isTrying ? `Step ${done + 1}: ${Math.min(scored.value, triesOfStep(of))} of ${triesOfStep(of)} tries` : ''}
      </span>
    </div>
  );
}
