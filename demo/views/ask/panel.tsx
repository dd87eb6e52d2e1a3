/** The box for the visitor's own question, and the answers of the start model and the current one. */

import { useSignal, useSignalEffect } from '@preact/signals';
import type { ComponentChild } from 'preact';
import { useRef } from 'preact/hooks';
import { ask, askAgain, countTokens, exampleText, newConversation, stopAsking } from '../../actions/ask.ts';
import type { Side } from '../../engine/answering.ts';
import {
  asking,
  exchanges,
  greedy,
  isGame,
  isTrained,
  refusal,
  sides,
  spoken,
  task,
  waiting,
} from '../../state/ask.ts';
import { ExchangeView } from './exchange.tsx';
import './ask.css';
import { state } from '../../state/stage.ts';

/** The panel "Ask it yourself". */
export function AskPanel() {
  return (
    <div class="ask">
      <header class="ask-head">
        <h2>Ask the model</h2>
        <p class="note">
          {isTrained.value
            ? 'The start model and the current model answer side by side, during training and after.'
            : 'Only the start model answers now. After step 1 the trained model answers next to it.'}
        </p>
      </header>
      {isGame.value ? <Play /> : <Box />}
      <p class="ask-waiting note" aria-live="off">
        {waiting.value}
      </p>
      {refusal.value !== '' && (
        <p class="notice error" role="alert">
          {refusal.value}
        </p>
      )}
      <p class="heard" role="status">
        {spoken.value}
      </p>
      <ol class="exchanges" aria-label="Questions and answers, newest first" hidden={exchanges.value.length === 0}>
        {[...exchanges.value].reverse().map((exchange) => (
          <li key={exchange.id}>
            <ExchangeView exchange={exchange} />
          </li>
        ))}
      </ol>
    </div>
  );
}

function Box() {
  const text = useSignal('');
  const example = useSignal(0);
  const count = useSignal<{ tokens: number; allowed: number } | undefined>(undefined);
  const box = useRef<HTMLTextAreaElement>(null);
  const calls = useRef(0);
  /** The example that was filled in. The choice of another task replaces the example, but never typed text. */
  const offered = useRef('');
  const showExample = async (number: number) => {
    const [call, before, asked] = [++calls.current, text.peek(), exchanges.peek().length];
    example.value = number;
    const shown = await exampleText(number).catch(() => before);
    // Text that was typed or asked in the meantime stays.
    const isUntouched = text.peek() === before && exchanges.peek().length === asked;
    if (call === calls.current && isUntouched) [text.value, offered.current] = [shown, shown];
  };
  useSignalEffect(() => {
    void task.value;
    if (['', offered.current].includes(text.peek()) && exchanges.peek().length === 0) void showExample(0);
  });
  useSignalEffect(() => {
    const [asked] = [text.value, exchanges.value, asking.value];
    void countTokens(asked).then((counted) => {
      if (text.peek() === asked) count.value = counted;
    });
  });
  const tooLong = count.value !== undefined && count.value.tokens > count.value.allowed;
  const submit = async () => {
    const asked = text.value.trim();
    if (asked === '' || asking.value) return;
    if (await ask(asked)) text.value = text.value.trim() === asked ? '' : text.value;
  };
  return (
    <div class="ask-box">
      <label for="ask-text">{exchanges.value.length > 0 ? 'Continue the conversation' : 'Your problem'}</label>
      <textarea
        id="ask-text"
        ref={box}
        rows={2}
        value={text.value}
        aria-describedby="ask-count"
        aria-invalid={tooLong}
        onInput={({ currentTarget }) => (text.value = currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          void submit();
        }}
      />
      <p id="ask-count" class={`note ${tooLong ? 'too-long' : ''}`}>
        {count.value && `${count.value.tokens} of at most ${count.value.allowed} tokens`}
        {tooLong && ': too long. Shorten it or start a new conversation'}
        {count.value ? '. ' : ''}Enter sends, Shift+Enter adds a line.
      </p>
      <Actions
        label="Ask"
        submit={() => void submit()}
        more={
          <button
            type="button"
            onClick={() => {
              void showExample(example.value + 1);
              box.current?.focus();
            }}
          >
            Another example
          </button>
        }
      />
    </div>
  );
}

/** Buttons for a game, whose problems are starting states that no text can describe. */
function Play() {
  return (
    <div class="ask-box">
      <p>
        {task.value?.name} is a game and cannot start from a question. Let both models play a held-out game against the
        same opponent.
      </p>
      <Actions label="Play a game" submit={() => void ask('')} />
    </div>
  );
}

const WHO: Record<string, readonly Side[]> = { both: ['before', 'now'], before: ['before'], now: ['now'] };

/** Buttons that are never disabled, so that they keep the focus. Pressing a button that has no effect now does nothing. */
function Actions({ label, submit, more }: { label: string; submit: () => void; more?: ComponentChild }) {
  const busy = asking.value;
  const cannot = state.value === 'no-gpu';
  const none = exchanges.value.length === 0;
  const who = Object.keys(WHO).find((key) => WHO[key].join() === sides.value.join());
  return (
    <div class="ask-actions">
      <button type="button" class="primary" aria-disabled={busy || cannot} onClick={() => !busy && !cannot && submit()}>
        {label}
      </button>
      <button type="button" aria-disabled={!busy} onClick={stopAsking}>
        Stop the answer
      </button>
      <button type="button" aria-disabled={busy || none} onClick={() => void askAgain()}>
        Ask again
      </button>
      <button type="button" aria-disabled={busy || none} onClick={() => !busy && newConversation()}>
        New conversation
      </button>
      {more}
      <label class="ask-choice">
        Answer with
        <select value={who} disabled={!isTrained.value} onChange={(e) => (sides.value = WHO[e.currentTarget.value])}>
          <option value="both">Both</option>
          <option value="before">Before training</option>
          <option value="now">Current model</option>
        </select>
      </label>
      <label class="ask-choice">
        Sampling
        <select
          value={greedy.value ? 'greedy' : 'sampled'}
          onChange={(e) => (greedy.value = e.currentTarget.value === 'greedy')}
        >
          <option value="sampled">Random, as in training</option>
          <option value="greedy">Greedy</option>
        </select>
      </label>
    </div>
  );
}
