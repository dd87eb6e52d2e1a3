/** Answers the visitor's own questions. */

import { batch, computed, effect, signal, type Signal } from '@preact/signals';
import { describe, InputError, isEngineLost } from '../../src/errors.ts';
import { questionOf, questionTokens } from '../../src/extensions/ask/index.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import type { Message, Problem, Task } from '../../src/tasks/task.ts';
import { Answering, type Side } from '../engine/answering.ts';
import { openTask } from '../engine/openTask.ts';
import type { Session } from '../engine/session.ts';
import { hub } from '../state/address/visit.ts';
import {
  type Answer,
  asking,
  exchanges,
  greedy,
  inWords,
  isGame,
  isTrained,
  refusal,
  sides,
  spoken,
  task,
  waiting,
} from '../state/ask.ts';
import { noteMissing } from '../state/missingParts.ts';
import { config as runConfig, session, stepsDone, weightsStep } from '../state/page.ts';
import { asked as askedRules, live, record } from '../state/rules.ts';
import { form, formIsReady } from '../state/settings/settings.ts';
import { valueInForce } from '../storage/runChanges.ts';

const answering = signal<Answering | undefined>(undefined);
/** Key (`sessionKey`) of the session that `answering` was opened for. */
let openedFor = '';
/** Model and task of the conversation. */
let conversationOf = '';
let stopping = new AbortController();
let conversation: Partial<Record<Side, readonly Message[]>> = {};
let numbered = 0;

/** Returns the run's config with the sampling settings of now; before a run that of the session, and without a session the form's. */
function configNow(): TrainConfig {
  if (!session.value) return form.config();
  // Before a run, the page possibly shows another run.
  if (weightsStep.value === 0 && !live.value) return session.value.config;
  const config = runConfig.value ?? session.value.config;
  const now = (key: 'temperature' | 'topP') =>
    valueInForce(record.value, stepsDone.value + 1, `rollout.${key}`, config.rollout[key]);
  return { ...config, rollout: { ...config.rollout, temperature: now('temperature'), topP: now('topP') } };
}

// The shown task is the session's. Without a session, it is the task that the form describes.
let formTask: { of: string; opened: Promise<Task> } | undefined;
effect(() => {
  const open = session.value;
  if (open) task.value = open.task;
  else if (formIsReady.value && 'config' in form.checked.value) void readTask().catch(() => {}); // `ask` reports the error
});

async function readTask(): Promise<Task> {
  const opened = session.value;
  if (opened) return askedRules.value.tool ? (await import('./openRules.ts')).withOpenTool(opened.task) : opened.task;
  const config = configNow();
  const of = JSON.stringify([config.task, config.reward]);
  if (formTask?.of !== of) formTask = { of, opened: openTask(config) };
  const own = await formTask.opened;
  if (formTask.of === of && !session.value) task.value = own; // no other task was chosen meanwhile
  return own;
}

/** Returns a problem of the task as an example question. */
export async function exampleText(number: number): Promise<string> {
  const { messages } = await (await readTask()).train(number, 0);
  return messages[messages.length - 1].content;
}

const tokenizer = computed<ChatTokenizer | undefined>(
  () => session.value?.engine.tokenizer ?? answering.value?.engine.tokenizer,
);

/** Returns the tokens of the longest prompt that `text` produces, and their limit. Undefined until a tokenizer is loaded. */
export async function countTokens(text: string): Promise<{ tokens: number; allowed: number } | undefined> {
  const [reads, about, opened] = [tokenizer.value, task.value, answering.value];
  if (!reads || !about || isGame.value) return undefined;
  const config = configNow();
  const { maxPromptLength, maxResponseLength } = config.data;
  const prompts = sides.value.map((side) => questionOf(about, text, conversation[side]));
  const counts = (await Promise.all(prompts)).map((problem) =>
    questionTokens({ config, task: about, tokenizer: reads }, problem),
  );
  return { tokens: Math.max(...counts), allowed: opened ? opened.contextLength - maxResponseLength : maxPromptLength };
}

/** Asks both models or one, continuing the conversation. In a game the text is ignored, and the game's next problem is played. */
export async function ask(text: string): Promise<boolean> {
  if (asking.value) return false;
  return begin(async (signal) => {
    const about = await readTask();
    if (isGame.value) return play(about, signal);
    const opened = await ready();
    const asked = await Promise.all(
      sidesOf(opened).map(async (side) => {
        const context = conversation[side] ?? [];
        const problem = await questionOf(about, text, context);
        checkLength(opened, about, problem);
        return { side, context, problem };
      }),
    );
    await answerAll(text, asked, signal);
  });
}

/** Samples other answers to the last question. */
export async function askAgain(): Promise<boolean> {
  const last = exchanges.value.at(-1);
  if (asking.value || !last) return false;
  return begin(async (signal) => {
    const about = await readTask();
    const opened = await ready();
    const asked = sidesOf(opened).map(async (side) => {
      const before = last.answers.find((answer) => answer.side === side)?.context ?? [];
      const problem = isGame.value ? last.problem : await questionOf(about, last.question, before);
      return { side, context: before, problem };
    });
    await answerAll(last.question, await Promise.all(asked), signal);
  });
}

/** Stops the answers in progress. */
export function stopAsking(): void {
  stopping.abort();
}

/** Clears the exchanges and starts a new conversation. */
export function newConversation(): void {
  [exchanges.value, refusal.value, conversation] = [[], '', {}];
}

async function play(about: Task, signal: AbortSignal): Promise<void> {
  const problems = await about.heldOut(numbered + 1);
  const problem = problems[numbered];
  const opened = await ready();
  const asked = sidesOf(opened).map((side) => ({ side, context: [], problem }));
  await answerAll(problem.messages[problem.messages.length - 1].content, asked, signal);
}

/** Runs `work`. Returns true if the question was answered, or stopped meanwhile. Otherwise `refusal` has the reason. */
async function begin(work: (signal: AbortSignal) => Promise<void>): Promise<boolean> {
  stopping = new AbortController();
  batch(() => ([asking.value, refusal.value, spoken.value] = [true, '', '']));
  try {
    await work(stopping.signal);
    return true;
  } catch (error) {
    refusal.value = describe(error);
    noteMissing(error);
    if (isEngineLost(error)) close();
    return false;
  } finally {
    batch(() => ([asking.value, waiting.value] = [false, '']));
  }
}

const sidesOf = (opened: Answering): readonly Side[] => {
  if (!opened.hasStart) return session.value ? ['now'] : ['before'];
  return isTrained.value ? sides.value : ['before'];
};

function close(): void {
  answering.value?.close();
  answering.value = undefined;
}

/** Returns the answering engine; opens one the first time a model is asked. */
async function ready(): Promise<Answering> {
  const config = configNow();
  const { model, data } = config;
  const from = session.value ? session.value.hub : hub;
  const of = JSON.stringify([from, model, data.maxPromptLength, data.maxResponseLength, data.chatTemplateKwargs]);
  const about = JSON.stringify([from, model, config.task]);
  if (about !== conversationOf) newConversation(); // another model or task would read a foreign prompt
  conversationOf = about;
  if (answering.value && openedFor === of) return answering.value;
  close();
  waiting.value = 'Loading the models...';
  const start = performance.now();
  const opened = await Answering.open(config, { session: session.value, hub: from, onDownload: () => {} });
  performance.measure('webgrpo: open answering engine', { start });
  [answering.value, openedFor] = [opened, of];
  return opened;
}

function checkLength(opened: Answering, about: Task, problem: Problem): void {
  const config = configNow();
  const tokens = questionTokens({ config, task: about, tokenizer: opened.engine.tokenizer }, problem);
  const allowed = opened.contextLength - config.data.maxResponseLength;
  if (tokens <= allowed) return;
  throw new InputError(
    `The conversation has ${tokens} tokens, but at most ${allowed} leave space for an answer. Shorten the question or start a new ` +
      'conversation.',
  );
}

interface Asked {
  side: Side;
  context: readonly Message[];
  problem: Problem;
}

async function answerAll(question: string, asked: readonly Asked[], signal: AbortSignal): Promise<void> {
  const opened = answering.value!;
  const needsPresent = asked.some(({ side }) => side === 'now');
  const step = needsPresent && session.value ? await takePresent(opened, session.value, signal) : 0;
  if (signal.aborted) return;
  waiting.value = '';
  const answers = asked.map(({ side, context }): Answer => ({
    side,
    step: side === 'now' ? step : 0,
    context,
    messages: sig([]),
    drawing: sig(''),
    ended: sig(undefined),
  }));
  exchanges.value = [...exchanges.value, { id: numbered++, question, problem: asked[0].problem, answers }];
  // Both models use the same random numbers, so their answers differ only because of their weights.
  const key = crypto.getRandomValues(new Uint32Array(2));
  const done = await Promise.allSettled(
    answers.map((answer, i) => draw(opened, answer, asked[i].problem, [key[0], key[1]], signal)),
  );
  spoken.value = answers.map(inWords).join(' ');
  for (const result of done) if (result.status === 'rejected') throw result.reason;
}

const sig = <T>(value: T): Signal<T> => signal(value);

async function draw(
  opened: Answering,
  answer: Answer,
  problem: Problem,
  key: [number, number],
  signal: AbortSignal,
): Promise<void> {
  const { tokenizer: reads } = opened.engine;
  const drawn: number[][] = [];
  try {
    const { messages, trajectory, observation } = await opened.answer(answer.side, {
      config: configNow(),
      task: await readTask(),
      problem,
      key,
      greedy: greedy.value,
      signal,
      onTokens: (ids, turn) => {
        const tokens = (drawn[turn] ??= []);
        tokens.push(...ids);
        const turnsDone = answer.messages.value.filter(({ role }) => role === 'assistant').length;
        if (turn >= turnsDone)
          answer.drawing.value = reads.decode(Uint32Array.from(tokens), { skipSpecialTokens: true });
      },
      onMessage: (message) =>
        batch(() => {
          answer.drawing.value = '';
          answer.messages.value = [...answer.messages.value, message];
        }),
    });
    const first = observation === '' ? [] : [{ role: 'user' as const, content: observation }];
    batch(() => {
      [answer.drawing.value, answer.ended.value] = ['', trajectory.stopReason];
      answer.messages.value = [...first, ...messages];
    });
    if (!isGame.value && trajectory.stopReason !== 'aborted')
      conversation = { ...conversation, [answer.side]: [...problem.messages, ...messages] };
  } catch (error) {
    answer.ended.value = 'error';
    throw error;
  }
}

/** Copies the session's current weights and returns their step. Waits while an update changes the weights. */
async function takePresent(opened: Answering, of: Session, stopped: AbortSignal): Promise<number> {
  for (;;) {
    if (weightsStep.value === undefined) waiting.value = 'Waiting for the update to end...';
    const step = await settledStep(of, stopped);
    if (stopped.aborted || opened.has(of, step)) return step;
    waiting.value = `Copying the weights of step ${step}...`;
    const weights = await Promise.race([of.engine.model.exportWeights(), of.failed]);
    if (weightsStep.value !== step) continue; // an update started meanwhile
    await opened.take(weights, of, step);
    return step;
  }
}

/** Returns the step of the weights, after the update that changes them; 0 once `stopped` aborts. */
function settledStep(of: Session, stopped: AbortSignal): Promise<number> {
  if (stopped.aborted) return Promise.resolve(0);
  return new Promise((resolve, reject) => {
    let dispose = () => {};
    const end = (settle: () => void) => {
      settle();
      queueMicrotask(() => dispose());
    };
    stopped.addEventListener('abort', () => end(() => resolve(0)), { once: true });
    dispose = effect(() => {
      const step = weightsStep.value;
      if (session.value !== of) end(() => reject(new InputError('The model was closed. Ask again.')));
      else if (step !== undefined) end(() => resolve(step));
    });
  });
}
