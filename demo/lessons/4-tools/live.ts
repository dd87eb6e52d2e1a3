/**
 * Live parts of lesson 4, by the shipped model: answers to the reader's problem with the reader's tool (figure 4.2), and training on the
 * reader's reward in small steps (figure 4.3). The weights are restored after the training.
 */

import { answer, questionOf } from '../../../src/extensions/ask/index.ts';
import { Learner } from '../../../src/extensions/learner/index.ts';
import { Rule, toolOf } from '../../../src/extensions/modules/index.ts';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { GrpoTrainer } from '../../../src/grpo/trainer.ts';
import { type LoggedRollout, loggedRollouts } from '../../../src/runs/rollouts.ts';
import type { Message } from '../../../src/tasks/task.ts';
import { type OpenRule, rewardBy, withTool } from '../../training/ruleParts.ts';
import { live } from '../kit/live.ts';

/** PROBLEMS: problems per step. HELD_OUT: problems of an evaluation. */
const PROBLEMS = 8;
const HELD_OUT = 64;
const TEST_EVERY = 10;
/** Number of tries of a step that are shown. */
const SHOWN = 8;

export interface LiveEvents {
  /** Called after each step with the step's mean reward, its share of right tries, and the tries of its first problem. */
  onStep: (step: readonly [number, number, number], tries: LoggedRollout[]) => void;
  onHeldOut: (step: number, share: number) => void;
  /** Called while an evaluation runs with the number of problems so far, and of all. */
  onEvaluating: (done: number, total: number) => void;
  signal: AbortSignal;
}

/** Trains for `steps` steps on a reward that is given as code. Throws RuleError if the code does not load or fails. */
export async function trainOn(code: string, steps: number, events: LiveEvents): Promise<void> {
  const { onStep, onHeldOut, onEvaluating, signal } = events;
  const rule = await Rule.open('reward', code);
  try {
    await live(async ({ config: recipe, engine, task }) => {
      const config: TrainConfig = {
        ...recipe,
        data: { ...recipe.data, trainBatchSize: PROBLEMS, valMaxSamples: HELD_OUT },
        actor: { ...recipe.actor, ppoMiniBatchSize: PROBLEMS / 2 },
      };
      const learner = new Learner({ engine, config });
      const start = await learner.saveState();
      let failed: Error | undefined;
      const open: OpenRule = { kind: 'reward', of: { name: 'own', code }, rule };
      const paid = rewardBy(task, open, (error) => (failed ??= error as Error));
      const trainer = new GrpoTrainer({ config, engine, task: { ...task, reward: paid }, onEvaluating });
      const test = async (step: number) => {
        const metrics = await trainer.validate({ signal });
        const name = Object.keys(metrics).find((key) => key.endsWith('acc/mean@1'))!;
        onHeldOut(step, metrics[name]);
      };
      try {
        await test(0);
        for (let step = 1; step <= steps && !signal.aborted; step++) {
          const { metrics, samples } = await trainer.step();
          if (failed !== undefined) throw failed;
          onStep(
            [step, metrics['critic/score/mean'], metrics['critic/acc/mean']],
            loggedRollouts(samples, step, SHOWN),
          );
          if (step % TEST_EVERY === 0 && !signal.aborted) await test(step);
        }
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        await learner.zeroGrad();
        await learner.loadState(start);
      }
    }, signal);
  } finally {
    rule.close();
  }
}

/** Tries at a problem of the reader. */
export const OWN_TRIES = 8;

interface AskEvents {
  /** Called at the end of each try, with its messages after the problem, and the name of the reader's tool. */
  onTry: (messages: readonly Message[], tool: string) => void;
  signal: AbortSignal;
}

/**
 * Samples tries at a problem with a tool that is given as code. Throws RuleError if the tool does not load, and InputError for a problem
 * that is too long.
 */
export async function answerWith(code: string, text: string, { onTry, signal }: AskEvents): Promise<void> {
  const rule = await Rule.open('tool', code);
  try {
    const tool = await toolOf(rule);
    await live(async ({ config, engine, task }) => {
      const { rollout, tokenizer } = engine;
      const problem = await questionOf(task, text);
      const asked = { config, rollout, tokenizer, problem, signal, task: { ...task, tools: withTool(task, tool) } };
      const one = async (_: unknown, i: number) => {
        const { messages } = await answer({ ...asked, key: [config.seed, i] });
        if (!signal.aborted) onTry(messages, tool.name);
      };
      try {
        await Promise.all(Array.from({ length: OWN_TRIES }, one));
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        await rollout.resetCache(0);
        await rollout.takeStats();
      }
    }, signal);
  } finally {
    rule.close();
  }
}
