/** Sampled rollouts as conversations, for report.html. */

import type { Message } from '../tasks/task.ts';
import { escapeHtml } from './report.ts';
import type { LoggedRollout } from '../cli/run/runFolder.ts';

const STEPS_SHOWN = 6;
const ROLLOUTS_PER_STEP = 4;

/** A few rollouts of the first step, the last, and some between. */
export function rolloutsHtml(rollouts: readonly LoggedRollout[]): string {
  const steps = [...new Set(rollouts.map(({ step }) => step))];
  if (steps.length === 0) return '<p>No rollouts were logged (trainer.logRollouts).</p>';
  return spread(steps, STEPS_SHOWN)
    .map((step) => stepHtml(step, rollouts))
    .join('\n');
}

function stepHtml(step: number, rollouts: readonly LoggedRollout[]): string {
  const shown = rollouts.filter((rollout) => rollout.step === step).slice(0, ROLLOUTS_PER_STEP);
  const cards = shown.map(rolloutHtml).join('\n');
  return `<details open><summary>step ${step}</summary><div class="cards">${cards}</div></details>`;
}

function rolloutHtml(rollout: LoggedRollout): string {
  const { score, acc, stopReason, numToolCalls, responseTokens, answer, problem } = rollout;
  const facts = [
    score === null ? 'no reward' : `reward ${score.toFixed(2)}`,
    `answer ${answer}`,
    `${numToolCalls} tool calls`,
    `${responseTokens} tokens`,
    stopReason,
    problem,
  ];
  const head = `<header class="${acc === 1 ? 'right' : 'wrong'}">${escapeHtml(facts.join(' - '))}</header>`;
  return `<article>${head}${rollout.messages.map(messageHtml).join('')}</article>`;
}

function messageHtml({ role, content }: Message): string {
  return `<div class="message ${role}"><b>${role}</b><span>${escapeHtml(content)}</span></div>`;
}

/** At most `count` of the items, the first and the last among them. */
function spread<T>(items: readonly T[], count: number): T[] {
  if (items.length <= count) return [...items];
  return Array.from({ length: count }, (_, i) => items[Math.round((i * (items.length - 1)) / (count - 1))]);
}
