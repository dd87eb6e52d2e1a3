import { describe, expect, test } from 'vitest';
import { answer } from '../../src/extensions/ask/answer.ts';
import { questionOf, questionTokens } from '../../src/extensions/ask/question.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { ScriptedTurns, tokenizer } from '../scriptedTurns.ts';
import { gsm8kJsonlTask } from '../../src/extensions/tasks/gsm8k/jsonl.ts';
import { trainProblem } from '../../src/tasks/gsm8k/task.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { ticTacToeTask } from '../../src/extensions/tasks/ticTacToe.ts';
import type { Message, SyncTask } from '../../src/tasks/task.ts';

const own: Message[] = [{ role: 'user', content: 'How many?' }];

describe('a question takes the place of a problem', () => {
  test('a question is used unchanged if problems are plain texts', async () => {
    expect(await questionOf(gsm8kToolTask(), 'How many?')).toMatchObject({ id: 'question', messages: own, answer: '' });
  });

  test('a question follows the system message of the problems', async () => {
    const system: Message = { role: 'system', content: 'Be brief.' };
    const task: SyncTask = {
      ...gsm8kToolTask(),
      train: (index, seed) => {
        const problem = trainProblem(index, seed);
        return { ...problem, messages: [system, ...problem.messages] };
      },
    };
    expect((await questionOf(task, 'How many?')).messages).toEqual([system, ...own]);
  });

  test('a question gets the instruction that GSM8K appends, in a conversation too', async () => {
    const task = gsm8kJsonlTask([trainProblem(0, 0)], [], { prompt: { systemPrompt: 'S', instruction: 'Think.' } });
    const { messages } = await questionOf(task, 'How many?');
    const asked = { role: 'user', content: 'How many? Think.' };
    expect(messages).toEqual([{ role: 'system', content: 'S' }, asked]);
    const earlier: Message[] = [...messages, { role: 'assistant', content: '#### 1' }];
    expect((await questionOf(task, 'How many?', earlier)).messages).toEqual([...earlier, asked]);
  });

  test.each([true, false])('the prompt of an answer has schemas as in training: %s', async (toolSchemasInPrompt) => {
    const config = resolveTrainConfig({
      ...{ name: 't', model: { path: 'x' }, data: { maxPromptLength: 320, maxResponseLength: 64 } },
      rollout: { multiTurn: { toolSchemasInPrompt } },
    });
    const [task, engine] = [gsm8kToolTask(), new ScriptedTurns(['#### 1'])];
    const problem = await questionOf(task, 'How many?');
    await answer({ config, task, tokenizer, rollout: engine, problem, key: [1, 1] });
    expect(engine.requests[0].contextIds).toHaveLength(questionTokens({ config, task, tokenizer }, problem));
  });

  test('a question sets up no environment', async () => {
    await expect(questionOf(ticTacToeTask(), 'X?')).rejects.toThrow(/environments, which a question cannot set up/);
  });
});
