/** Tests `webgrpo train` as a user starts it: the content of its run folder, which checkpoints are kept, and how the run resumes. */

import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { BestCheckpoint } from '../../src/runs/keptCheckpoints.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { type Io, processIo, withIo } from '../../src/cli/process/io.ts';
import { DeviceLostError, InputError } from '../../src/errors.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { modelTokenizer } from '../../src/model/tokenizer/modelTokenizer.ts';
import { disk } from '../../src/cli/files.ts';
import { runSupervised } from '../../src/cli/run/supervised.ts';
import { parseSftConfig } from '../../src/extensions/sft/index.ts';
import { sayEstimate } from '../../src/cli/run/plan.ts';
import { untoldTools } from '../../src/cli/run/session.ts';
import type { Problem, Task } from '../../src/tasks/task.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { calculator } from '../../src/tasks/tools/calculator.ts';
import { linesIn, metricsIn, RunningCommand, scriptedEngines, webgrpo } from '../commandLine.ts';
import { type Gate, TestGate } from '../scripted/gate.ts';
import { scriptedEngine, withoutTimes } from '../scriptedRuns.ts';
import { stub } from '../stub.ts';

const defaultLocalDir = mkdtempSync(join(tmpdir(), 'webgrpo-train-'));
/** This metric depends only on the sampled problems, so it is the same on every adapter: 31, 27.5, 28. */
const METRIC = 'prompt_length/mean';
const TINY = [
  ...['data.trainBatchSize=2', 'actor.ppoMiniBatchSize=2', 'rollout.n=2', 'data.valMaxSamples=2'],
  ...['trainer.valBeforeTrain=false', 'trainer.testFreq=0', 'trainer.profile=false', 'trainer.kernelTuning=off'],
  `trainer.defaultLocalDir=${defaultLocalDir}`,
];

const start = (overrides: string[], gate?: Gate, onLine?: (line: string) => void) =>
  new RunningCommand(['train', 'configs/gsm8k-tool.yaml', ...TINY, ...overrides], {
    createEngine: scriptedEngines(gate),
    ...(onLine && { onLine }),
  });
const train = (...overrides: string[]) => start(overrides).done;

const inRun = (run: string, ...names: string[]) => join(defaultLocalDir, run, ...names);
const metricsOf = (run: string) => metricsIn(inRun(run));
const stepsOf = (run: string) => metricsOf(run).map((line) => line['training/global_step']);
const checkpointsOf = (run: string) => readdirSync(inRun(run, 'checkpoints')).sort();
const eventFiles = (run: string) => readdirSync(inRun(run)).filter((name) => name.includes('tfevents'));

test('Ctrl-C ends an evaluation; a resumed run repeats the one of step 0 and of the last step, but no other', async () => {
  const settings = ['trainer.totalTrainingSteps=2', 'trainer.testFreq=1', 'trainer.valBeforeTrain=true'];
  const best = ['trainer.metricForBestModel=val-core/gsm8k-tool/acc/mean@1', 'trainer.logger=[jsonl, csv]'];
  const gate = new TestGate();
  const stopIn = async (run: RunningCommand) => {
    await gate.held('turn');
    run.signal('SIGINT');
    gate.open();
    return run.done;
  };
  const evaluatedSteps = (name: string) =>
    metricsOf(name).flatMap((line) => (line['timing_s/testing'] === undefined ? [] : [line['training/global_step']]));
  gate.upTo(0, 'turn');
  const atStart = await stopIn(start(['name=evaluated', ...settings], gate));
  expect(atStart.said.join('\n')).toContain('Stopping: this evaluation ends without a result');
  expect(atStart.status).toBe(3);
  expect(existsSync(inRun('evaluated', 'metrics.jsonl'))).toBe(false);

  // The first turn after the update of step 1 is a turn of the evaluation.
  gate.upTo(0);
  const resumed = start(['name=evaluated', ...settings, 'trainer.resumeMode=auto'], gate);
  await gate.held('update');
  gate.upTo(0, 'turn');
  gate.upTo(Infinity);
  expect((await stopIn(resumed)).status).toBe(3);
  expect(evaluatedSteps('evaluated')).toEqual([0]);
  expect(stepsOf('evaluated')).toEqual([0, 1]);

  const atEnd = start(['name=evaluated', ...settings, 'trainer.resumeMode=auto', ...best], gate);
  gate.upTo(0);
  await gate.held('update');
  gate.upTo(0, 'turn');
  gate.upTo(Infinity);
  const { status, stdout } = await stopIn(atEnd);
  expect([status, stepsOf('evaluated')]).toEqual([3, [0, 1, 2]]);
  expect(stdout).toMatch(/^ +pass@1 +\d\.\d+ +-$/m);
  expect(evaluatedSteps('evaluated')).toEqual([0]);

  const { said, ...ended } = await train('name=evaluated', ...settings, 'trainer.resumeMode=auto', ...best);
  expect(ended.status).toBe(0);
  expect(said).toContain('step 2 lacks the evaluation that ends the run, which is done now');
  expect(JSON.parse(readFileSync(inRun('evaluated', 'best.json'), 'utf8'))).toMatchObject({ step: 2 });
  expect((await train('name=whole', ...settings)).status).toBe(0);
  expect(evaluatedSteps('evaluated')).toEqual([0, 2]);
  expect(readFileSync(inRun('evaluated', 'metrics.csv'), 'utf8').trim().split('\n')).toHaveLength(1 + 3);
  const withoutValues = (name: string) => metricsOf(name).filter((line) => line['training/global_step'] !== 1);
  expect(withoutTimes(withoutValues('evaluated'))).toEqual(withoutTimes(withoutValues('whole')));
});

test('a learning rate of auto is reported as a number, which the run folder contains', async () => {
  const { said } = await train('name=auto', 'actor.optim.lr=auto', 'trainer.totalTrainingSteps=1');
  expect(said.join('\n')).toMatch(/^learning rate: 0.00025, for 0.409 M parameters; actor.optim.lr sets another$/m);
  expect(readFileSync(inRun('auto', 'config.yaml'), 'utf8')).toMatch(/^ +lr: 0.00025$/m);
  const again = await train(
    'name=auto',
    'actor.optim.lr=auto',
    'trainer.totalTrainingSteps=2',
    'trainer.resumeMode=auto',
  );
  expect(again.said.filter((line) => line.includes('lr'))).toEqual([]); // it has not changed
});

test('a run with trackers and few checkpoints is resumed twice', async () => {
  const settings = [
    'name=a',
    'trainer.logger=[jsonl, csv, tensorboard]',
    'trainer.saveFreq=1',
    'trainer.maxActorCkptToKeep=1',
    `trainer.metricForBestModel=${METRIC}`,
    'trainer.greaterIsBetter=false',
  ];
  const first = await train(...settings, 'trainer.totalTrainingSteps=3');
  expect(first.said.filter((line) => line.startsWith('step '))).toEqual([]); // the loggers do not include the console
  expect(first.status).toBe(0);

  // The newest and the best checkpoint are kept, and the output names the best one.
  const lengths = metricsOf('a').map((line) => line[METRIC]);
  const best = 1 + lengths.indexOf(Math.min(...lengths));
  expect(best).toBeLessThan(3); // otherwise the kept checkpoints prove nothing
  expect(checkpointsOf('a')).toEqual([`step-${best}`, 'step-3']);
  const named: BestCheckpoint = {
    step: best,
    metric: METRIC,
    value: lengths[best - 1],
    checkpoint: `checkpoints/step-${best}`,
  };
  expect(JSON.parse(readFileSync(inRun('a', 'best.json'), 'utf8'))).toEqual(named);
  expect(first.stdout).toContain(`best: step ${best}, ${METRIC} ${named.value} (${inRun('a', named.checkpoint)})`);
  expect(readFileSync(inRun('a', 'metrics.csv'), 'utf8').trim().split('\n')).toHaveLength(1 + 3);
  expect(eventFiles('a')).toHaveLength(1);

  // Each logged sample contains the values from which its advantage was computed.
  const rollouts = [1, 2, 3].flatMap((step) => linesIn<LoggedRollout>(inRun('a', 'rollouts', `step-${step}.jsonl`)));
  expect(rollouts).toHaveLength(3 * 4);
  for (const { score, advantage, group, step, extra } of rollouts) {
    const scores = rollouts
      .filter((other) => other.step === step && other.group === group)
      .map((other) => other.score!);
    if (scores.every((other) => other === score)) expect(advantage).toBeCloseTo(0, 6);
    else expect(Math.sign(advantage!)).toBe(score === Math.max(...scores) ? 1 : -1);
    expect(Object.keys(extra ?? {}).length).toBeGreaterThan(0);
  }

  // With resumeMode=auto and the same settings, the run resumes. Each step is logged once, and the new steps go to another event file.
  const changed = inRun('a', 'changes.jsonl'); // as a run of the page has it
  writeFileSync(changed, '{"step":2,"key":"lr","from":0.001,"to":0.01}\n');
  const second = await train(...settings, 'trainer.totalTrainingSteps=4', 'trainer.resumeMode=auto');
  rmSync(changed);
  expect(second.said.filter((line) => line.startsWith(`${changed} has settings`))).toHaveLength(1);
  expect(second.said).toContain(`resumed from step 3: ${inRun('a', 'checkpoints', 'step-3')}`);
  expect(second.status).toBe(0);
  expect(stepsOf('a')).toEqual([1, 2, 3, 4]);
  expect(readFileSync(inRun('a', 'metrics.csv'), 'utf8').trim().split('\n')).toHaveLength(1 + 4);
  expect(eventFiles('a')).toHaveLength(2);
  expect(checkpointsOf('a')).toContain('step-4');

  // A separate run resumes from a path. The other run's folder stays unchanged.
  const from = inRun('a', 'checkpoints', 'step-4');
  const third = await train(
    'name=b',
    'trainer.totalTrainingSteps=5',
    'trainer.resumeMode=resume_path',
    `trainer.resumeFromPath=${from}`,
  );
  expect(third.said).toContain(`resumed from step 4: ${from}`);
  expect(third.said.filter((line) => line.startsWith('step '))).toEqual([
    expect.stringMatching(/^step 5\/5 {2}reward /),
  ]);
  expect([stepsOf('b'), stepsOf('a')]).toEqual([[5], [1, 2, 3, 4]]);
  expect(existsSync(inRun('b', 'metrics.csv'))).toBe(false);
});

/** Settings of a run in which one update makes the weights infinite. */
const HUGE = ['actor.optim.lr=3e38', 'actor.optim.weightDecay=10'];

test('weights that are not finite end the run with one error, are not saved, and earlier checkpoints stay', async () => {
  const { status, said } = await train('name=nan', ...HUGE, 'trainer.totalTrainingSteps=6');
  expect(status).toBe(1);
  const last = said.filter((line) => line !== '').at(-1);
  expect(last).toMatch(/^3 steps in a row had numbers that are not finite, .* Lower actor\.optim\.lr \(3e\+38\)/);
  expect(last).toMatch(
    /Weights that are not finite are not saved\. The run has no checkpoint \(see trainer\.saveFreq\)\.$/,
  );
  expect(said.join('\n')).not.toContain('as it should be');
  const kept = readdirSync(inRun('nan', 'errors')).sort();
  expect(kept).toHaveLength(3);
  expect(said.join('\n')).toContain(`Its inputs are in ${inRun('nan', 'errors', kept[0])}.`);
  const [head, sample] = linesIn<Record<string, unknown>>(inRun('nan', 'errors', kept[0]));
  expect(head).toMatchObject({ samples: 4, config: { actor: { optim: { lr: 3e38 } } } });
  expect(sample).toHaveProperty('responseIds');
  expect(existsSync(inRun('nan', 'checkpoints'))).toBe(false);
  const saving = await train('name=saving', ...HUGE, 'trainer.totalTrainingSteps=2', 'trainer.saveFreq=1');
  expect(saving.status).toBe(1);
  expect(saving.said.join('\n')).toMatch(
    /After step 1 the weights are not finite \(".*"\)\. Lower actor\.optim\.lr \(3e\+38\)\. Weights/,
  );
});

/** Returns the metrics and the other results of a run, without times. */
function outcome(run: string, step: number) {
  const files = ['model.safetensors', 'optimizer.safetensors', 'trainer_state.json'];
  const bytes = files.map((file) => readFileSync(inRun(run, 'checkpoints', `step-${step}`, file)).toString('base64'));
  return { metrics: withoutTimes(metricsOf(run)), bytes };
}

test('a run of partial rollouts that was stopped continues as if it had not been', async () => {
  const settings = ['rollout.overSampleRate=1.5', 'rollout.partialRollout=true', 'rollout.maxNumSeqs=8'];
  const three = [...settings, 'trainer.saveFreq=1', 'trainer.totalTrainingSteps=3'];
  expect((await train('name=whole', ...three)).status).toBe(0);

  const running = start(['name=stopped', ...three], undefined, (line) => {
    if (line.startsWith('step 2/3')) running.signal('SIGTERM');
  });
  const stopped = await running.done;
  expect(stopped.status).toBe(3);
  expect(stopped.said).toContain('Stopping after this step. Press Ctrl-C again to quit without saving.');
  expect(stopped.said.at(-1)).toMatch(
    /^Stopped and saved\. To resume: .* train configs\/gsm8k-tool\.yaml .*resumeMode=auto/,
  );
  expect(checkpointsOf('stopped')).toContain('step-2');
  expect(checkpointsOf('stopped')).not.toContain('step-3');
  const resumed = await train('name=stopped', ...three, 'trainer.resumeMode=auto');
  expect(resumed.said).toContain('3 groups were in flight (rollout.partialRollout): resumed with the samples so far');
  expect(resumed.status).toBe(0);
  expect(outcome('stopped', 3)).toEqual(outcome('whole', 3));
});

test.each<[heldOut: string, reward: string, line: RegExp, status: number]>([
  ['[]', '({ score: 1, acc: 1 })', /^Task "own" has no held-out problems: no pass@1 is measured\.$/m, 0],
  [
    '[of(8), of(0)]',
    '({ score: 1, acc: 1 })',
    /^At least 1 of 2 held-out problems .* too, e\.g\. "0": pass@1 is too high\.$/m,
    0,
  ],
  ['[of(8)]', '1', /^The reward of problem "8" is 1\. Return \{ score, acc \}, or a promise of it\.$/m, 2],
  ['[of(8)]', '({ score: 1 })', /^The reward of problem "8" has the acc undefined\. Give 1 for right/m, 2],
])('a task whose held-out problems are %s, with the reward %s', async (heldOut, reward, line, status) => {
  const module = join(mkdtempSync(join(tmpdir(), 'webgrpo-held-out-')), 'task.mjs');
  writeFileSync(
    module,
    `const of = (i) => ({ id: String(i), messages: [{ role: 'user', content: 'x' + i }], answer: 'a' });
    export default { name: 'own', train: of, heldOut: () => ${heldOut}, reward: () => (${reward}) };`,
  );
  const task = [`task.module=${module}`, 'trainer.valBeforeTrain=true', 'trainer.totalTrainingSteps=1'];
  const ended = await train('name=held-out', ...task);
  expect(ended.said.join('\n')).toMatch(line);
  expect(ended.status).toBe(status);
});

test('--dry-run prints plan and estimate, and writes nothing', async () => {
  let [now, tick] = [0, 1];
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => (now += tick));
  onTestFinished(() => clock.mockRestore());
  const { said, status } = await new RunningCommand(
    ['train', 'configs/gsm8k-tool.yaml', '--dry-run', 'name=dry', ...TINY, 'data.valMaxSamples=4'],
    { createEngine: scriptedEngines() },
  ).done;
  expect(status).toBe(0);
  expect(said.join('\n')).toMatch(
    /^batches: 4 samples per step, 1 update per step, .*\nlengths: .*\nalgorithm: grpo.*\nestimate: \d+:\d\d per step, \d+:\d\d per evaluation, \d+:\d\d for 80 steps \(timed on 4 samples\)$/m,
  );
  expect(existsSync(inRun('dry'))).toBe(false);
  const planned = JSON.parse((await train('name=dry', '--dry-run', '--json')).stdout) as Record<string, unknown>;
  expect(planned).toMatchObject({
    batches: { samples: 4, updates: 1, maxTokens: 4 * 160 },
    lengths: { maxPromptLength: 160, maxResponseLength: 160 },
    algorithm: expect.stringMatching(/^grpo, loss vanilla/) as string,
    estimate: { bound: '', steps: 80, timedSamples: 4 },
  });
  tick = 45_000;
  expect((await train('name=dry', '--dry-run')).said.join('\n')).toMatch(
    /^estimate: at most \d+:\d\d per step, .* \(timed on 2 samples\)$/m,
  );
  clock.mockRestore();
  const sft = await train('name=dry', '--dry-run', 'model.path=configs/gsm8k-sft.yaml');
  expect(sft.said.join()).toContain('--dry-run trains no warm start, but model.path is configs/gsm8k-sft.yaml.');
  expect(sft.status).toBe(2);
});

test('--dry-run of a run folder estimates the steps that are left', async () => {
  expect((await train('name=part', 'trainer.totalTrainingSteps=2')).status).toBe(0);
  const dry = async (steps: number) => {
    const settings = [`trainer.totalTrainingSteps=${steps}`, 'trainer.testFreq=1', 'trainer.valBeforeTrain=true'];
    const { stdout, said } = await webgrpo(['train', inRun('part'), ...settings, '--dry-run', '--json'], {
      createEngine: scriptedEngines(),
    });
    const { estimate } = JSON.parse(stdout) as { estimate: NonNullable<Awaited<ReturnType<typeof sayEstimate>>> };
    return { ...estimate, line: said.find((line) => line.startsWith('estimate')) };
  };
  const left = await dry(5);
  expect(left).toMatchObject({
    steps: 3,
    line: expect.stringContaining('for 3 steps after step 2 (timed on') as string,
  });
  // Evaluations after steps 3 and 4 without the greedy pass, and one after step 5 with it.
  const sampled = left.evaluationS / 2;
  expect(left.totalS).toBeCloseTo(3 * left.stepS + 2 * sampled + left.evaluationS, 6);
  expect(await dry(2)).toMatchObject({ steps: 0, totalS: 0 });
  expect((await dry(3)).line).toContain('for 1 step after step 2');
});

test('an estimate says if steps can be shorter or longer', async () => {
  const quiet = { ...processIo, stderr: { isTTY: false, write: () => {} } };
  const estimate = async (settings: object) => {
    const config = resolveTrainConfig({
      name: 'estimated',
      model: { path: 'x' },
      data: { trainBatchSize: 2, maxPromptLength: 48, maxResponseLength: 12 },
      rollout: { n: 2, maxNumSeqs: 2 }, // times one group alone, whatever its seconds
      actor: { ppoMiniBatchSize: 2, optim: { lr: 1e-2 } },
      ...settings,
    });
    const session = { engine: scriptedEngine(), task: { ...gsm8kToolTask(), tools: [] } };
    return (await withIo(quiet, () => sayEstimate(config, session, new AbortController().signal)))!;
  };
  const isSum = ({ stepS, generationS, updateS }: Awaited<ReturnType<typeof estimate>>) =>
    stepS === generationS + updateS;
  const trainer = { pipeline: 'one-step-off' } as const;
  const alone = await estimate({});
  expect([alone.bound, isSum(alone)]).toEqual(['', true]);
  const colocated = await estimate({ trainer });
  expect([colocated.bound, isSum(colocated)]).toEqual(['at most', true]);
  const split = await estimate({ trainer: { ...trainer, placement: 'split' } });
  expect([split.bound, split.stepS]).toEqual(['at least', Math.max(split.generationS, split.updateS)]);
  const waiting = { stalenessThreshold: 0, onStale: 'wait' } as const;
  const inTurn = await estimate({ trainer: { pipeline: 'fully-async', placement: 'split' }, asyncTraining: waiting });
  expect([inTurn.bound, isSum(inTurn)]).toEqual(['', true]);
  const filtered = await estimate({ algorithm: { filterGroups: { enable: true } } });
  expect([filtered.bound, isSum(filtered)]).toEqual(['at least', true]);
  expect((await estimate({ algorithm: { filterGroups: { enable: true } }, trainer })).bound).toBe('about');
});

test('a tool that neither a prompt nor the template names is reported', () => {
  const own = stub<Task>({ name: 'own', tools: [{ ...calculator, name: 'min' }, calculator] });
  const asks = (content: string): Problem => ({ id: '0', messages: [{ role: 'user', content }], answer: '' });
  const { rollout } = resolveTrainConfig({ name: 'own', model: { path: 'm' } });
  const untold = (problems: Problem[], ownRollout = rollout) => untoldTools(own, problems, ownRollout);
  expect(untold([asks('Call min.'), asks('Call calculator.')])).toEqual(['calculator', 'min']);
  expect(untold([asks('Call min and calculator.')])).toEqual([]);
  // Samples that cannot call tools need no description of them.
  expect(untold([{ ...asks('Add.'), agentName: 'single_turn_agent' }])).toEqual([]);
  expect(untold([asks('Add.')], { ...rollout, agent: { ...rollout.agent, defaultAgentLoop: 'single_turn' } })).toEqual(
    [],
  );
  expect(untold([asks('Add.')], { ...rollout, multiTurn: { ...rollout.multiTurn, enable: false } })).toEqual([]);
});

test('a second signal ends the process immediately', async () => {
  const gate = new TestGate();
  gate.upTo(0);
  const running = start(['name=ended', 'trainer.totalTrainingSteps=2'], gate);
  await gate.reached(1);
  const clock = vi.spyOn(performance, 'now').mockReturnValue(1e9);
  onTestFinished(() => clock.mockRestore());
  running.signal('SIGINT');
  expect(running.endedBy).toEqual([]);
  clock.mockReturnValue(1e9 + 1000);
  running.signal('SIGINT');
  expect(running.endedBy).toEqual(['SIGINT']);
  gate.open();
  expect((await running.done).status).toBe(3);
});

test('the last checkpoint of a finished run stays if the extension of the run was killed before its first save', async () => {
  expect((await train('name=longer', 'trainer.totalTrainingSteps=2')).status).toBe(0);
  const config = readFileSync(inRun('longer', 'config.yaml'), 'utf8');
  // The killed extension left these two files.
  writeFileSync(inRun('longer', 'config-1.yaml'), config);
  writeFileSync(inRun('longer', 'config.yaml'), config.replace('totalTrainingSteps: 2', 'totalTrainingSteps: 4'));
  const extended = await train('name=longer', 'trainer.totalTrainingSteps=4', 'trainer.resumeMode=auto');
  expect(extended.status).toBe(0);
  expect(extended.said).toContain(`resumed from step 2: ${inRun('longer', 'checkpoints', 'step-2')}`);
  expect(checkpointsOf('longer')).toEqual(['step-2', 'step-4']);
});

test('a run whose device is lost continues on a new one, with the results of an undisturbed run', async () => {
  const four = ['trainer.totalTrainingSteps=4', 'trainer.saveFreq=2'];
  await train('name=unbroken', ...four);
  const gate = new TestGate();
  gate.fail(1, new DeviceLostError('unknown', 'The test took it.'));
  gate.fail(9, new DeviceLostError('unknown', 'The test took it.'), 'turn');
  gate.fail(3, new DeviceLostError('unknown', 'The test took it.'));
  const { status, said } = await start(['name=lost', ...four], gate).done;
  expect(status).toBe(0);
  expect(outcome('lost', 4)).toEqual(outcome('unbroken', 4));
  const losses = said.filter((line) => line.startsWith('the GPU device was lost'));
  expect(losses).toHaveLength(3);
  expect(losses[0]).toMatch(/lost before the first step was done \(.*\), resuming on a new one from the start$/);
  expect(losses[2]).toMatch(/lost after step 2 \(.*\), resuming on a new one from \S+step-2$/);
});

test('eval and the evaluations of train show problems and tokens; the lines of steps show where pass@1 was measured', async () => {
  const around = { createEngine: scriptedEngines(), isTTY: true };
  const lines = async (command: string, ...args: string[]) => {
    const { said } = await webgrpo([command, 'configs/gsm8k-tool.yaml', ...TINY, ...args], around);
    return said.flatMap((line) => line.split('\r\x1b[K'));
  };
  const evaluated = await lines('eval', '--model', 'checkpoints/gsm8k-tool');
  expect(evaluated).toContain('evaluating: 0 of 2 problems');
  expect(evaluated).toContainEqual(expect.stringMatching(/^evaluating: 1 of 2 problems, \d+ tokens, \d:\d\d left$/));
  expect(evaluated).toContainEqual(expect.stringMatching(/^evaluating: 2 of 2 problems, \d+ tokens$/));
  const trained = await lines(
    'train',
    'name=shown',
    'trainer.totalTrainingSteps=3',
    'trainer.testFreq=2',
    'rollout.n=1',
  );
  expect(trained).toContainEqual(
    expect.stringMatching(/^step 1: generating, 1 of 2 samples, \d+ tokens, \d:\d\d left$/),
  );
  expect(trained).toContainEqual(expect.stringMatching(/^step 2: evaluating, 2 of 2 problems, \d+ tokens$/));
  const steps = trained.filter((line) => /^step \d\/3/.test(line));
  expect(steps.map((line) => line.includes('pass@1'))).toEqual([false, true, true]);
  expect(trained.filter((line) => line.startsWith('The policy loss'))).toEqual([]);
  expect(trained).toContain(
    'rollout.n is 1: with one sample per prompt the advantage is the reward, and no sample is compared with another',
  );
});

test('devices that are lost one after the other end the run', async () => {
  const lost = () => Promise.reject(new DeviceLostError('unknown', 'The test took it.'));
  const { status, said } = await start(['name=gone'], { at: (moment) => (moment === 'update' ? lost() : undefined) })
    .done;
  expect(status).toBe(1);
  expect(said).toContain(
    'the GPU device was lost 3 times without a new step in between, before the first step was done: stopped, no checkpoint was saved',
  );
});

test.each([
  ['train', ['configs/gsm8k-tool.yaml', ...TINY, 'name=ends'], 'model.path='],
  ['eval', ['configs/gsm8k-tool.yaml'], '--model='],
  ...(process.env['FULL_TESTS'] === '1'
    ? ([['serve', ['configs/gsm8k-tool.yaml', ...TINY, 'name=served', '--port', '0'], 'model.path=']] as const)
    : []),
  ['generate', ['--chat', '--prompt', 'What is 1 + 1?'], '--model='],
] as const)(
  '%s ends turns by the tokens of all three files, and says if the template writes none of them',
  async (command, args, model) => {
    const shipped = 'checkpoints/gsm8k-tool';
    const folder = mkdtempSync(join(tmpdir(), 'webgrpo-ends-'));
    cpSync(shipped, folder, { recursive: true });
    const read = (name: string) => JSON.parse(readFileSync(join(shipped, name), 'utf8')) as Record<string, unknown>;
    const write = (name: string, json: object) => writeFileSync(join(folder, name), JSON.stringify(json));
    const { eos_token_id: _, ...config } = read('config.json');
    rmSync(join(folder, 'manifest.json'), { force: true });
    write('tokenizer_config.json', { ...read('tokenizer_config.json'), eos_token: '<|endoftext|>' });
    const tokenizer = new ChatTokenizer(read('tokenizer.json'), read('tokenizer_config.json'));
    const [text, turn, call] = ['<|endoftext|>', '<|im_end|>', '</tool_call>'].map((name) => tokenizer.idOf(name)!);
    const opened = async (own: object, generation: object) => {
      write('config.json', { ...config, ...own });
      write('generation_config.json', generation);
      const ends: number[][] = [];
      const createEngine: Io['createEngine'] = (spec) => {
        ends.push(modelTokenizer(spec).eosTokenIds);
        throw new InputError('seen');
      };
      const { said } = await webgrpo([command, ...args, `${model}${folder}`], { createEngine });
      return { ends, notes: said.filter((line) => line.includes("closes an assistant's turn with <|im_end|>")) };
    };
    expect(await opened({ eos_token_id: call }, { eos_token_id: [turn] })).toEqual({
      ends: [[turn, text, call]],
      notes: [],
    });
    expect((await opened({ eos_token_id: call }, {})).notes).toHaveLength(1);
  },
);

test('a warm start that is stopped in its last step is complete; a damaged one is trained again; one without space changes nothing', async () => {
  const source = join(mkdtempSync(join(tmpdir(), 'webgrpo-warm-')), 'sft.yaml');
  const yaml =
    'name: warm\nmodel: { path: checkpoints/gsm8k-tool }\ndata: { trainBatchSize: 1 }\noptim: { lrWarmupSteps: 0 }\ntrainer: { totalTrainingSteps: 1 }\n';
  writeFileSync(source, yaml);
  const warmed = async () => {
    const { said, status } = await train('name=warmed', `model.path=${source}`, 'trainer.totalTrainingSteps=1');
    expect(status).toBe(0);
    return said.find((line) => line.startsWith('warm start: '))!;
  };
  const gate = new TestGate();
  gate.upTo(0);
  const running = start(['name=warmed', `model.path=${source}`], gate);
  await gate.held('update');
  running.signal('SIGINT');
  gate.open();
  const stopped = await running.done;
  expect(stopped.said.at(-1)).toMatch(/^Stopped after step 1 of 1 of the supervised run\..* but was not evaluated\.$/);
  expect([stopped.status, existsSync(inRun('warmed'))]).toEqual([3, false]);
  expect(await warmed()).toMatch(/made earlier by/);
  const weights = inRun('warm', 'checkpoints', 'step-1', 'model.safetensors');
  const bytes = readFileSync(weights);
  bytes[bytes.length - 1] ^= 1;
  writeFileSync(weights, bytes);
  expect(await warmed()).toMatch(/again, because the earlier one is incomplete$/);
  const config = parseSftConfig(yaml, { source, overrides: [`trainer.defaultLocalDir=${defaultLocalDir}`] });
  const full = { ...disk, free: async () => 10 };
  const createEngine = scriptedEngines()!;
  await expect(withIo({ ...processIo, createEngine }, () => runSupervised(full, config))).rejects.toThrow(
    /^A checkpoint in \S+warm needs \S+ MiB/,
  );
  expect(existsSync(weights)).toBe(true);
});
