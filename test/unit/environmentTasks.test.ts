/**
 * Plays the shipped environments and the documented example with scripted turns. Tests that maps are solvable, rules are kept, and turns
 * earn the right rewards.
 */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  act,
  adventureTask,
  type AdventureProblem,
  begin,
  linesOf,
  solve,
} from '../../src/extensions/tasks/adventure.ts';
import { bestMoves, freeCells, resultOf, ticTacToeTask } from '../../src/extensions/tasks/ticTacToe.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { keyedRng } from '../../src/tasks/random.ts';
import guessTask from '../../examples/environment.ts';
import { scriptedEngine } from '../scriptedRuns.ts';
import { LIMITS, samplesOf } from '../scriptedTurns.ts';

const call = (name: string, args: object = {}) => `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`;

describe('examples/environment.ts', () => {
  test('two tools share the count of tries', async () => {
    const [sample] = await samplesOf(
      guessTask,
      [guessTask.train(3)],
      [call('hint'), call('guess', { n: 50 }), call('guess', { n: 10 })],
    );
    expect(sample.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)).toEqual([
      'even',
      'lower',
      'right',
    ]);
    expect(sample.reward.score).toBeCloseTo(1 - 0.05 * 4);
    expect(sample.reward.turns).toHaveLength(3);
  });

  test('turns are trained by their rewards', async () => {
    const config = resolveTrainConfig({
      name: 'tiny',
      model: { path: 'x' },
      data: { trainBatchSize: 2, maxPromptLength: 48, maxResponseLength: 192, valMaxSamples: 2 },
      rollout: { n: 4, multiTurn: { maxAssistantTurns: 3 } },
      actor: { ppoMiniBatchSize: 2, optim: { lr: 1e-3 } },
      algorithm: { advEstimator: 'turn_loo' },
      trainer: { totalTrainingSteps: 2, testFreq: 0, valBeforeTrain: false },
    });
    const engine = scriptedEngine({ says: ({ key: [, s] }) => (s % 2 ? call('hint') : call('guess', { n: 10 })) });
    const { history } = await new GrpoTrainer({ config, task: guessTask, engine }).fit();
    expect(history).toHaveLength(2);
    for (const metrics of history) {
      expect(Number.isFinite(metrics['critic/score/mean'])).toBe(true);
      expect(metrics['actor/grad_norm']).toBeGreaterThan(0);
    }
  });
});

describe('adventure', () => {
  const task = adventureTask();
  const problems = [
    ...Array.from({ length: 100 }, (_, i) => task.train(i, 1)),
    ...task.heldOut(40),
  ] as AdventureProblem[];

  test('every map can be solved, and only the shortest way scores 1', async () => {
    for (const { map } of problems) {
      const lines = solve(begin(), map)!;
      expect(lines.filter((line) => line.includes('key'))).toEqual(['take key', 'use key']);
      const state = begin();
      for (const line of lines) {
        expect(linesOf(state, map)).toContain(line);
        act(state, map, line);
      }
      expect(state.isOut).toBe(true);
    }
    const lines = solve(begin(), problems[0].map)!;
    const limits = {
      ...LIMITS,
      maxResponseLength: 4000,
      contextLength: 5000,
      maxPromptLength: 400,
      maxAssistantTurns: 20,
    };
    const [sample] = await samplesOf(task, [problems[0]], lines, 1, { limits });
    expect(sample.reward).toMatchObject({ score: 1, acc: 1, extra: { key: 1, door: 1 } });
    expect(sample.reward.turns!.filter((reward) => reward > 0)).toEqual([0.2, 0.3, 0.5]);
  });

  test('training maps are never held out; tools and text commands have the same effects', async () => {
    const held = new Set(task.heldOut(60).map((one) => JSON.stringify(one['map'])));
    expect(held.size).toBe(60);
    for (let i = 0; i < 300; i++) expect(held.has(JSON.stringify(task.train(i, 2)['map']))).toBe(false);
    const { map } = problems[1];
    const calls = solve(begin(), map)!.map((line) => {
      const [verb, noun] = line.split(' ');
      return call(verb, verb === 'go' ? { direction: noun } : { item: noun });
    });
    const limits = {
      ...LIMITS,
      maxResponseLength: 4000,
      contextLength: 5000,
      maxPromptLength: 400,
      maxAssistantTurns: 20,
      maxToolCalls: 20,
    };
    const [sample] = await samplesOf(task, [problems[1]], [call('look'), ...calls], 1, { limits });
    expect(sample.reward.acc).toBe(1);
  });

  test('no text of a command breaks the environment', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(
            fc.string(),
            fc.constantFrom('go', 'take key', 'use key', 'go north', 'go constructor', 'take __proto__'),
          ),
        ),
        (lines) => {
          const state = begin();
          for (const line of lines) expect(act(state, problems[2].map, line)).toBeTruthy();
        },
      ),
    );
  });
});

describe('tic-tac-toe', () => {
  test('perfect play never loses, against any opponent', async () => {
    for (const strength of [0, 0.5, 1]) {
      const task = ticTacToeTask({ strength });
      for (let i = 0; i < (process.env['FULL_TESTS'] === '1' ? 30 : 8); i++) {
        const game = task.train(i, 1);
        const demo = task.demonstrate!(game, keyedRng('demo', i), 0);
        const turns = demo.filter(({ role }) => role === 'assistant').map(({ content }) => content);
        const [sample] = await samplesOf(task, [game], turns);
        expect(sample.trajectory.stopReason).toBe('done');
        expect([0.5, 1]).toContain(sample.reward.score);
        if (strength === 1) expect(sample.reward.score).toBe(0.5);
        expect(sample.messages.slice(0, -1)).toEqual(demo.slice(1)); // the demonstration equals a played sample
      }
    }
  });

  test('an illegal move ends the game, or is reported as often as the game forgives one', async () => {
    const [lost] = await samplesOf(ticTacToeTask(), [ticTacToeTask().train(0, 1)], ['ten', '1']);
    expect(lost.reward).toMatchObject({ score: -0.1, acc: 0, turns: [-0.1], extra: { illegal: 1 } });
    const task = ticTacToeTask({ illegalMoves: 1, modelStarts: 1 });
    const [told] = await samplesOf(task, [task.train(0, 1)], ['0', '5', '5']);
    expect(told.messages[1].content).toMatch(/^Not a free cell\.\n123\n456\n789$/);
    expect(told.reward.turns).toEqual([-0.1, 0, -0.1]);
  });

  test('the rules: lines, full boards, and the moves that minimax finds', () => {
    expect(['XXX.OO...', 'OX.XO.X.O', 'XOXXOOOXX', 'XX.OO....'].map(resultOf)).toEqual([
      'won',
      'lost',
      'drawn',
      undefined,
    ]);
    expect(freeCells('XX.OO....')).toEqual([2, 5, 6, 7, 8]);
    expect(bestMoves('XX.OO....', 'X')).toEqual([2]);
    expect(bestMoves('X.X.O....', 'O')).toEqual([1]);
    expect(() => ticTacToeTask({ strength: 2 })).toThrow(
      'tic-tac-toe: option strength is 2; allowed: a share, from 0 to 1.',
    );
  });
});
