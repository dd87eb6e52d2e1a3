/** One try: its conversation, its reward, and on request its tokens. */

import { useSignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect } from 'preact/hooks';
import type { StopReason } from '../../../src/rollout/types.ts';
import { plural, short, signed } from '../../../src/ui/format.ts';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { hold, looked } from '../../state/tries/shown.ts';
import { type TryTokens, tokensOf } from '../../training/tokens.ts';
import { Conversation } from './conversation.tsx';
import { isJudged, isRight } from '../../state/tries/comparison.ts';

const STOP_REASONS: Partial<Record<string, string>> = {
  completed: '',
  done: 'ended by a tool',
  max_turns: 'ended: too many turns',
  max_tokens: 'ended: out of tokens',
  max_tool_calls: 'ended: too many tool calls',
  context_overflow: 'ended: context full',
  parse_error: 'ended: unreadable tool call',
  tool_failure: 'ended: a tool failed',
  timeout: 'ended: out of time',
  aborted: 'ended: aborted',
  error: 'ended: its agent loop failed',
} satisfies Record<StopReason, string>;

/** Shows one try. */
export function Try({ shown, place }: { shown: LoggedRollout; place: number }) {
  const isOpen = looked.value === shown;
  const tokens = tokensOf(shown);
  const holdOn = () => hold('nothing', shown.group); // before the click, because the next step would remove the button before the click arrives
  const toggle = () => {
    holdOn();
    looked.value = isOpen ? undefined : shown;
  };
  return (
    <article class={`try${isOpen ? ' open' : ''}`} aria-label={`Try ${place}`}>
      <Head shown={shown} />
      <footer>
        <span>{factsOf(shown)}</span>
        {tokens && (
          <button type="button" class="look" aria-expanded={isOpen} onPointerDown={holdOn} onClick={toggle}>
            {isOpen ? 'Show text' : 'Inspect tokens'}
          </button>
        )}
      </footer>
      {isOpen && tokens ? (
        <Inspector tokens={tokens} shown={shown} />
      ) : (
        // The key creates new elements for each step. Reused elements would move by the height of the text above them.
        <Conversation key={`${shown.step} ${shown.group} ${place}`} shown={shown} />
      )}
    </article>
  );
}

function Head({ shown }: { shown: LoggedRollout }) {
  const { score, advantage } = shown;
  const right = isRight(shown);
  return (
    <header>
      {isJudged(shown) && <span class={`verdict ${right ? 'right' : 'wrong'}`}>{right ? 'Correct' : 'Wrong'}</span>}
      <span class="number">
        reward <b>{score === null ? 'none' : short(score)}</b>
      </span>
      {advantage !== null && (
        <span class={`number ${advantage > 0 ? 'up' : advantage < 0 ? 'down' : ''}`}>
          advantage <b>{signed(advantage)}</b>
        </span>
      )}
    </header>
  );
}

function factsOf({ responseTokens, numToolCalls, stopReason }: LoggedRollout): string {
  return [plural(responseTokens, 'token'), plural(numToolCalls, 'tool call'), STOP_REASONS[stopReason] ?? stopReason]
    .filter(Boolean)
    .join(' \u00b7 ');
}

type InspectorProps = { tokens: TryTokens; shown: LoggedRollout };

/** The inspector, loaded when it is first opened. */
function Inspector(props: InspectorProps) {
  const view = useSignal<ComponentType<InspectorProps> | undefined>(undefined);
  useEffect(() => {
    void import('../inspector/inspector.tsx').then((loaded) => (view.value = loaded.Inspector));
  }, []);
  const View = view.value;
  return View ? <View {...props} /> : <Conversation shown={props.shown} />;
}
