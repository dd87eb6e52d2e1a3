/** One question with its answers side by side. Each answer is redrawn when its tokens arrive. */

import type { StopReason } from '../../../src/rollout/types.ts';
import { type Answer, type Exchange, finalAnswer, nameOf } from '../../state/ask.ts';
import type { Message } from '../../../src/tasks/task.ts';
import { isErrorText } from '../../../src/tasks/toolOutput.ts';
import { TurnText } from './turnText.tsx';

const ENDS: Partial<Record<string, string>> = {
  completed: '',
  done: '',
  max_turns: 'Ended: too many turns.',
  max_tokens: 'Ended: the answer reached the token limit.',
  max_tool_calls: 'Ended: too many tool calls.',
  context_overflow: 'Ended: the context is full.',
  parse_error: 'Ended: the tool call cannot be read.',
  tool_failure: 'Ended: the tool failed.',
  timeout: 'Ended: out of time.',
  aborted: 'Stopped.',
  error: 'Failed.',
} satisfies Record<StopReason, string>;

/** Shows a question and its answers. */
export function ExchangeView({ exchange: { question, answers } }: { exchange: Exchange }) {
  return (
    <article class="exchange">
      <p class="asked">{question}</p>
      <div class="answers">
        {answers.map((answer) => (
          <AnswerView key={answer.side} answer={answer} />
        ))}
      </div>
    </article>
  );
}

function AnswerView({ answer }: { answer: Answer }) {
  const { messages, drawing, ended } = answer;
  const last = messages.value.at(-1);
  const final = ended.value !== undefined && last?.role === 'assistant' ? finalAnswer(last.content) : undefined;
  return (
    <section class="answer-by" data-side={answer.side} data-ended={ended.value ?? ''} aria-label={nameOf(answer)}>
      <h3>{nameOf(answer)}</h3>
      <div class="turns">
        {messages.value.map((message, i) => (
          <MessageView key={i} message={message} />
        ))}
        {ended.value === undefined && (
          <p class="message drawing">
            <TurnText text={drawing.value} />
            <span class="cursor" aria-hidden="true" />
          </p>
        )}
      </div>
      <p class="note">
        {final !== undefined && (
          <>
            Answer: <b>{final}</b>.{' '}
          </>
        )}
        {ended.value === undefined ? 'Answering...' : (ENDS[ended.value] ?? `Ended: ${ended.value}.`)}
      </p>
    </section>
  );
}

function MessageView({ message: { role, content } }: { message: Message }) {
  if (role === 'assistant')
    return (
      <p class="message">
        <TurnText text={content} />
      </p>
    );
  const failed = isErrorText(content);
  return (
    <p class={`message tool ${failed ? 'failed' : ''}`}>
      <span class="who">{role === 'tool' ? 'tool result' : 'game'}</span>
      {content}
    </p>
  );
}
