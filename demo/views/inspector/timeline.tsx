/** Shows how a try spent its time: generating tokens, calling tools, being scored, or waiting. */

import { duration } from '../../../src/ui/format.ts';
import type { EventKind, SampleEvent } from '../../../src/rollout/agent/events.ts';

/**
 * Labels of the kinds of event that are shown. Events inside 'generate' are omitted, and events after the last token are not part of the
 * try.
 */
const SHOWN: Partial<Record<EventKind, string>> = {
  generate: 'generating',
  tool: 'tool',
  reward: 'scoring',
};

/** Draws the time of a try as a bar. */
export function Timeline({ events = [] }: { events?: readonly SampleEvent[] | undefined }) {
  const spans = events.filter(({ kind }) => kind in SHOWN);
  if (spans.length === 0) return null;
  const from = Math.min(...spans.map(({ start }) => start));
  const all = Math.max(...spans.map(({ end }) => end)) - from;
  const share = (ms: number) => `${(100 * ms) / Math.max(all, 1e-9)}%`;
  const sum = (wanted: EventKind) =>
    spans.filter(({ kind }) => kind === wanted).reduce((total, { start, end }) => total + end - start, 0);
  const kinds = [...new Set(spans.map(({ kind }) => kind))].filter((kind) => sum(kind) >= 0.05);
  return (
    <figure class="try-times">
      <div class="lane" aria-hidden="true">
        {spans.map(({ kind, start, end, turn }, i) => (
          <span
            key={i}
            class={`span-${kind}`}
            title={`Turn ${Math.max(1, turn)}: ${SHOWN[kind]}, ${duration((end - start) / 1000)}`}
            style={{ left: share(start - from), width: share(end - start) }}
          />
        ))}
      </div>
      <figcaption>
        {kinds.map((kind) => (
          <span key={kind}>
            <i class={`key span-${kind}`} />
            {SHOWN[kind]} {duration(sum(kind) / 1000)}
          </span>
        ))}
        <span>all {duration(all / 1000)}</span>
      </figcaption>
    </figure>
  );
}
