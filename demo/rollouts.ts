/**
 * The latest step as conversations: pick a problem, see the model's tries at it side by side, each with its tool calls,
 * reward and advantage. The view follows the run until someone picks a problem.
 */

import type { Sample } from '../src/grpo/update/batch.ts';
import type { Message } from '../src/tasks/task.ts';
import { el } from '../src/report/page/dom.ts';
import { short, signed } from '../src/report/page/format.ts';

/** Tries shown before "show all": the best and the worst of the group. */
const SHOWN = 2;

const STOP_REASONS: Record<string, string> = {
  completed: '',
  done: 'ended by a tool',
  max_turns: 'ended: too many turns',
  max_tokens: 'ended: out of tokens',
  max_tool_calls: 'ended: too many tool calls',
  context_overflow: 'ended: context full',
  aborted: 'ended: aborted',
};

export class Rollouts {
  readonly #parent: HTMLElement;
  #groups: Sample[][] = [];
  #step = 0;
  #chosen = 0;
  #following = true;
  #all = false;
  #newest: { samples: Sample[]; step: number } | undefined;

  constructor(parent: HTMLElement) {
    this.#parent = parent;
    this.clear();
  }

  clear(): void {
    [this.#following, this.#all, this.#newest] = [true, false, undefined];
    this.#parent.replaceChildren(
      el('p', 'empty', 'After the first step: what the model wrote, what its calculator answered, and what it earned.'),
    );
  }

  /** A finished step. `samples` may be empty (an evaluation). */
  show(samples: Sample[], step: number): void {
    if (samples.length === 0) return;
    this.#newest = { samples, step };
    if (this.#following) this.#takeNewest();
    this.#draw();
  }

  #takeNewest(): void {
    if (!this.#newest) return;
    const byGroup = new Map<number, Sample[]>();
    for (const sample of this.#newest.samples)
      byGroup.set(sample.group, [...(byGroup.get(sample.group) ?? []), sample]);
    this.#groups = [...byGroup.values()];
    this.#step = this.#newest.step;
    this.#chosen = mostTelling(this.#groups);
  }

  #draw(): void {
    const group = this.#groups[this.#chosen];
    this.#parent.replaceChildren(this.#picker(), problemView(group[0]), this.#tries(group), this.#more(group));
  }

  #picker(): HTMLElement {
    const buttons = this.#groups.map((group, g) => {
      const solved = group.filter(({ reward }) => reward.acc >= 1).length;
      const button = el('button', 'group', `${solved}/${group.length}`);
      button.type = 'button';
      button.title = `Problem ${g + 1}: ${solved} of ${group.length} tries right`;
      button.style.setProperty('--share', String(solved / group.length));
      button.setAttribute('aria-pressed', String(g === this.#chosen));
      button.addEventListener('click', () => this.#choose(g));
      return button;
    });
    const label = el('span', 'label', `Step ${this.#step}, problem ${this.#chosen + 1} of ${this.#groups.length}`);
    const behind = this.#newest !== undefined && !this.#following;
    const follow = el('button', 'follow', behind ? 'Show the newest' : 'Newest shown');
    follow.type = 'button';
    follow.disabled = !behind;
    follow.addEventListener('click', () => this.#follow());
    return el('div', 'picker', label, el('div', 'groups', ...buttons), follow);
  }

  #choose(group: number): void {
    [this.#chosen, this.#following] = [group, false];
    this.#draw();
  }

  #follow(): void {
    this.#following = true;
    this.#takeNewest();
    this.#draw();
  }

  #tries(group: Sample[]): HTMLElement {
    const sorted = [...group].sort((a, b) => scoreOf(b) - scoreOf(a));
    const shown = this.#all || sorted.length <= SHOWN ? sorted : [sorted[0], sorted[sorted.length - 1]];
    return el('div', 'tries', ...shown.map((sample) => tryView(sample)));
  }

  #more(group: Sample[]): HTMLElement {
    const button = el('button', 'more', this.#all ? 'Show the best and the worst' : `Show all ${group.length} tries`);
    button.type = 'button';
    button.hidden = group.length <= SHOWN;
    button.addEventListener('click', () => {
      this.#all = !this.#all;
      this.#draw();
    });
    return button;
  }
}

/** For sorting: a try without a reward comes last. */
const scoreOf = ({ reward }: Sample) => (Number.isNaN(reward.score) ? -Number.MAX_VALUE : reward.score);

/** The group whose tries differ the most: what GRPO learns from. */
function mostTelling(groups: Sample[][]): number {
  const spread = (group: Sample[]) => {
    const scores = group.map(({ reward }) => reward.score).filter((score) => !Number.isNaN(score));
    return scores.length > 0 ? Math.max(...scores) - Math.min(...scores) : 0;
  };
  const even = (group: Sample[]) => Math.abs(group.filter(({ reward }) => reward.acc >= 1).length / group.length - 0.5);
  const order = groups.map((group, g) => ({ g, spread: spread(group), even: even(group) }));
  order.sort((a, b) => b.spread - a.spread || a.even - b.even);
  return order[0].g;
}

function problemView({ problem }: Sample): HTMLElement {
  const messages = problem.messages.map((message) => el('p', 'question', message.content));
  return el('div', 'problem', ...messages, el('p', 'answer', 'Right answer: ', el('b', '', problem.answer)));
}

function tryView(sample: Sample): HTMLElement {
  const { reward, trajectory, advantage = 0, messages } = sample;
  const right = reward.acc >= 1;
  const facts = [
    `${trajectory.responseIds.length} tokens`,
    count(trajectory.numToolCalls, 'tool call'),
    STOP_REASONS[trajectory.stopReason] ?? trajectory.stopReason,
  ].filter(Boolean);
  const head = el(
    'header',
    '',
    el('span', `verdict ${right ? 'right' : 'wrong'}`, right ? 'Right' : 'Wrong'),
    el('span', 'number', 'reward ', el('b', '', Number.isNaN(reward.score) ? 'none' : short(reward.score))),
    el(
      'span',
      `number ${advantage > 0 ? 'up' : advantage < 0 ? 'down' : ''}`,
      'advantage ',
      el('b', '', signed(advantage)),
    ),
  );
  const turns = messages.map((message) => messageView(message));
  return el('article', 'try', head, el('div', 'turns', ...turns), el('footer', '', facts.join(' \u00b7 ')));
}

const count = (n: number, what: string) => `${n} ${what}${n === 1 ? '' : 's'}`;

function messageView({ role, content }: Message): HTMLElement {
  if (role === 'tool') {
    const failed = content.startsWith('Error');
    return el('p', `message tool${failed ? ' failed' : ''}`, el('span', 'who', 'calculator answers'), content);
  }
  return el('div', 'message assistant', ...assistantParts(content));
}

/** Text as it is, and tool calls as calls. */
function assistantParts(content: string): Node[] {
  const parts = content.split(/(<tool_call>[\s\S]*?(?:<\/tool_call>|$))/);
  return parts
    .filter((part) => part.trim() !== '')
    .map((part) => {
      if (part.startsWith('<tool_call>')) return callView(part);
      const [, before, line, after] = /^([\s\S]*?)(#### [^\n]*)([\s\S]*)$/.exec(part) ?? [];
      if (line === undefined) return el('span', '', part.trim());
      return el('span', '', before.trim(), el('b', 'final', line), after.trim());
    });
}

/** `calculator(48/2)`, or the text itself, marked, where it is not a call that can be read. */
function callView(text: string): HTMLElement {
  const body = text.replace(/<\/?tool_call>/g, '').trim();
  try {
    const { name, arguments: args } = JSON.parse(body) as { name: string; arguments: Record<string, unknown> };
    return el('code', 'call', `${name}(${Object.values(args).map(String).join(', ')})`);
  } catch {
    return el('code', 'call unreadable', text);
  }
}
