/** Tests a user's own losses, advantages, examples and tokenizers, in the library and on the command line. */
import { mkdirSync, mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import {
  ChatTokenizer,
  checkPolicyLoss,
  type CustomLoss,
  defineLoss,
  freshModelConfig,
  GrpoTrainer,
  packIds,
  POLICY_LOSSES,
  registerAdvantage,
  registerPolicyLoss,
  registerRecipe,
  resolveSftConfig,
  resolveTrainConfig,
  sftExample,
  tokenizerOf,
} from '../../src/index.ts';
import { agentLoopOf } from '../../src/rollout/agent/loop.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { syntaxPlace } from '../../src/cli/importModule.ts';
import { webgrpo } from '../commandLine.ts';
import { solveWordProblem } from '../scripted/solver.ts';
import { ScriptedEngine } from '../scriptedEngine.ts';
import { tokenizer } from '../scriptedTurns.ts';

const row = () => ({ loss: 0, grad: 0 });
const resolved = (actor: object, algorithm: object = {}) =>
  resolveTrainConfig({ name: 't', model: { path: 'm' }, actor, algorithm });

test.each(Object.keys(POLICY_LOSSES))('checkPolicyLoss holds for %s', async (name) => {
  const fixedRatio = ['cispo', 'dppo_tv', 'dppo_kl', 'vespo', 'reinforce'].includes(name);
  const { tokens, slopeError } = await checkPolicyLoss(POLICY_LOSSES[name], { fixedRatio, numbers: { droBeta: 0.1 } });
  expect(tokens).toBe(44);
  expect(slopeError).toBeLessThan(1e-5);
});

test('checkPolicyLoss names the token where gradient and value disagree, of rows and of functions', async () => {
  const wrong = {
    name: 'mine',
    row: (_numbers: object, t: { logp: number; advantage: number }) => ({
      loss: -t.advantage * t.logp,
      grad: t.advantage,
    }),
  };
  await expect(checkPolicyLoss(wrong)).rejects.toThrow(
    /^Policy loss "mine": at log ratio -2\.3000 and advantage -1\.7 the gradient is -\d.*, but the value's slope is \d/,
  );
  const right: CustomLoss = ({ logProbs, advantages, weights }) => ({
    loss: logProbs.reduce((sum, logp, e) => sum - weights[e] * advantages[e] * logp, 0),
    dLogProbs: advantages.map((a, e) => -weights[e] * a),
  });
  expect((await checkPolicyLoss(right)).slopeError).toBeLessThan(1e-6);
  await expect(checkPolicyLoss((rows) => ({ dLogProbs: right(rows).dLogProbs }))).rejects.toThrow(
    'Return { loss, dLogProbs }',
  );
});

test('examples/my-loss.js: its gradient is the slope of its value, a number of its own is a key, and its WGSL is registered', async () => {
  const { default: register } = await import('../../examples/my-loss.js');
  register({ registerPolicyLoss, defineLoss });
  expect(POLICY_LOSSES.mine.wgsl).toContain('params.beta');
  expect((await checkPolicyLoss(POLICY_LOSSES.mine)).slopeError).toBeLessThan(1e-5);
  const { policyLoss, lossAggMode } = resolved({ policyLoss: { beta: 0.05 } }, { name: 'mine' }).actor;
  expect({ ...policyLoss, lossAggMode }).toMatchObject({ lossMode: 'mine', beta: 0.05, lossAggMode: 'token-mean' });
});

test('a name is unknown until it is registered; numbers of its own are keys, others are refused', () => {
  expect(() => resolved({ policyLoss: { lossMode: 'later' } })).toThrow(
    '"actor.policyLoss.lossMode" is "later"; allowed: vanilla | ',
  );
  registerPolicyLoss('later', { numbers: { laterBeta: 1 }, row });
  registerAdvantage('later_advantage', ({ masks }) => masks.map((mask) => new Float64Array(mask.length)));
  const config = resolved({ policyLoss: { lossMode: 'later', laterBeta: 2 } }, { advEstimator: 'later_advantage' });
  expect(config.actor.policyLoss).toMatchObject({ laterBeta: 2 });
  expect(() => resolved({ policyLoss: { lossMode: 'other' } })).toThrow(/vespo \| later\.$|\| later/);
  expect(() => resolved({ policyLoss: { laterBeta: 2 } })).toThrow('unknown key "actor.policyLoss.laterBeta"');
  expect(() => resolved({ policyLoss: { lossMode: 'later', laterBeta: 'x' } })).toThrow(
    '"actor.policyLoss.laterBeta" is "x"; allowed: a number.',
  );
  expect(() => registerPolicyLoss('vanilla', { row })).toThrow('Policy loss "vanilla" is built in');
  expect(() => registerPolicyLoss('a b', { row })).toThrow('cannot be called "a b"');
  expect(() => registerAdvantage('grpo', () => [])).toThrow('Advantage "grpo" is built in');
});

test('from texts to a tokenizer, a fresh model, an example and a packed batch', () => {
  const messages = [
    { role: 'user' as const, content: 'say abc' },
    { role: 'assistant' as const, content: 'abc' },
    { role: 'user' as const, content: 'again' },
    { role: 'assistant' as const, content: 'abc abc' },
  ];
  const files = tokenizerOf(['user\n', 'assistant\n', ...messages.map(({ content }) => content)], 300);
  const tokenizer = new ChatTokenizer(files.tokenizer, files.config);
  const model = freshModelConfig(resolveSftConfig({ name: 's', model: { hiddenSize: 64 } }), tokenizer.vocabSize);
  expect(model).toMatchObject({ hiddenSize: 64, vocabSize: tokenizer.vocabSize });
  const { promptIds, responseIds, mask } = sftExample(tokenizer, messages);
  const text = (ids: Iterable<number>) => tokenizer.decode([...ids]);
  expect(text(promptIds)).toContain('say abc');
  expect(text(responseIds.filter((_, t) => mask[t] === 1))).toMatch(/^abc.*abc abc/);
  expect(text(responseIds.filter((_, t) => mask[t] === 0))).toContain('again');
  expect([...responseIds.filter((_, t) => mask[t] === 1)].filter((id) => id === tokenizer.eosTokenIds[0])).toHaveLength(
    2,
  );
  expect(() => sftExample(tokenizer, messages.slice(0, 3))).toThrow(
    'The roles of these messages are: user, assistant, user.',
  );
  expect(() => sftExample(tokenizer, messages.slice(1))).toThrow('of which the last is the assistant');
  const [{ batch, entryGroup }] = packIds([Uint32Array.of(5, 6, 7), Uint32Array.of(8, 9)], 64);
  expect([...batch.targets]).toEqual([6, 7, 9]);
  expect([...entryGroup]).toEqual([0, 0, 1]);
});

describe('--import', () => {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-import-'));
  const out = join(folder, 'out');
  const written = (name: string, text: string): string => {
    const file = join(folder, name);
    writeFileSync(file, text);
    return file;
  };
  const train = (name: string, ...more: string[]) =>
    webgrpo([
      ...['train', 'configs/gsm8k-tool.yaml', `algorithm.name=${name}`, `model.path=${out}/none`],
      ...[`trainer.defaultLocalDir=${out}`, ...more],
    ]);
  const said = async (...args: [string, ...string[]]) => (await train(...args)).said.at(-1);

  test('registers before the config is read', async () => {
    const file = written(
      'mine.mjs',
      "export default ({ registerPolicyLoss }) => registerPolicyLoss('from_file', { row: () => ({ loss: 0, grad: 0 }) });\n",
    );
    expect(await said('from_file')).toMatch(/"algorithm\.name" is "from_file"; allowed/);
    // Reports the next error.
    expect(await said('from_file', '--import', file)).toBe(await said('grpo'));
    const [loop, row, batch] = ['own-loop.ts', 'my-loss.js', 'batch-loss.js'].map((name) => `examples/${name}`);
    const all = ['--import', loop, '--import', row, '--import', batch, 'rollout.agent.defaultAgentLoop=self_check'];
    for (const name of ['mine', 'by_batch']) expect(await said(name, ...all)).toBe(await said('grpo'));
    expect((await checkPolicyLoss(POLICY_LOSSES.by_batch)).slopeError).toBeLessThan(1e-5);
    expect(await said('grpo', '--import', 'none.mjs')).toMatch(
      /^--import: there is no none\.mjs in \S+\. Give the path of a \.js or \.ts file\.$/,
    );
  });

  test.each([
    ['doctor', (run: string) => [run]],
    ['simulate', (run: string) => [run]],
    ['generate', (run: string) => ['--model', run, '--prompt', 'x']],
    ['export', (run: string) => ['trl', run, '--out', join(folder, 'exported')]],
    ['eval', (run: string) => [run]],
    ['train', (run: string) => [run]],
    ['serve', (run: string) => [run]],
  ])('%s of a run with a registered loss needs the --import of the run, and says so', async (command, words) => {
    const name = `own_${command}`;
    const run = join(folder, `run-${command}`);
    mkdirSync(run);
    writeFileSync(
      join(run, 'config.yaml'),
      `name: r\nmodel: ${out}/none\ndata: {maxPromptLength: 8, maxResponseLength: 8}\nalgorithm: {name: ${name}}\n`,
    );
    writeFileSync(join(run, 'metrics.jsonl'), '{"training/global_step": 1}\n');
    const told = async (...more: string[]) => (await webgrpo([command, ...words(run), ...more])).said.join('\n');
    expect(await told()).toMatch(
      new RegExp(`"algorithm.name" is "${name}"; .*load the module first, by the --import FILE of the run\\.`),
    );
    const register = `export default ({ registerPolicyLoss }) => registerPolicyLoss('${name}', { row: () => ({ loss: 0, grad: 0 }) });`;
    expect(await told('--import', written(`${name}.mjs`, register))).not.toMatch(/algorithm\.name|Unknown option/);
  });

  test('sft imports too, and an unknown agent loop names the flag', async () => {
    const { said: lines } = await webgrpo(['sft', 'configs/gsm8k-sft.yaml', '--import', 'none.mjs']);
    expect(lines.at(-1)).toMatch(/^--import: there is no none\.mjs in /);
    expect(() => agentLoopOf('nowhere')).toThrow(
      /Name one of them\. If your own module registers it, .* --import FILE /,
    );
  });

  test('takes TypeScript, and a module that registers as it loads, by another copy of the library', async () => {
    vi.resetModules();
    const copy = await import('../../src/index.ts');
    expect(copy.registerRecipe).not.toBe(registerRecipe);
    vi.stubGlobal('copyOfLibrary', copy);
    symlinkSync(resolve('node_modules'), join(folder, 'node_modules'), 'junction');
    const loads = written(
      'loads.ts',
      `const { registerAgentLoop, registerRecipe } = (globalThis as { copyOfLibrary?: any }).copyOfLibrary;
       registerAgentLoop('loop_of_copy', async () => 'completed' as const);
       registerRecipe('recipe_of_copy', { actor: { clipRatioHigh: 0.5 } });\n`,
    );
    const asked = ['--import', loads, 'rollout.agent.defaultAgentLoop=loop_of_copy'] as const;
    const plain = await said('grpo');
    for (let round = 0; round < 2; round++) expect(await said('recipe_of_copy', ...asked)).toBe(plain);
    expect(resolved({}, { name: 'recipe_of_copy' }).actor.clipRatioHigh).toBe(0.5);
    expect(agentLoopOf('loop_of_copy')).toBeInstanceOf(Function);
    // Copies of the library that are loaded later have the registrations too.
    vi.resetModules();
    expect((await import('../../src/index.ts')).RECIPES).toHaveProperty('recipe_of_copy');
  });

  test.each<[string, RegExp, string?]>([
    [
      'export const x = 1;',
      /other\.mjs: it registers nothing, and it has no default export that is a function\. Write/,
    ],
    [
      'export default () => nothing.at.all;',
      /^The default function of \S+ \S+other\.mjs threw "nothing is not defined" \(at .*\)\. Correct the file\.$/,
    ],
    ['throw new Error("early")', /other\.mjs does not load: early \(\S+other\.mjs:1:\d+\)\. Correct the file\.$/],
    [
      "export default (l) => l.registerPolicyLoss('x', {})",
      /^Policy loss "x" is neither a row nor a function\. Register/,
    ],
    ["export default (l) => l.registerAdvantage('x')", /^Advantage "x" is undefined, not a function\. Register/],
    ["export default (l) => l.registerAgentLoop('x', 1)", /^The agent loop "x" is 1, not a function\. Register/],
    ['\nexport default (a: number =>', /other\.ts does not load: \S.*\(\S+other\.ts:\d+\)\. Correct the file\.$/, 'ts'],
    [
      "import a from './gone.ts'; a();",
      /other\.ts does not load: Could not resolve '.\/gone\.ts' in .*:1\)\. Correct the file\.$/,
      'ts',
    ],
    [
      "import { no } from './my.ts'; no();",
      /other\.ts does not load: "no" is not exported by .*:1\)\. Correct the file\.$/,
      'ts',
    ],
  ])('of %j ends in a sentence', async (text, sentence, kind = 'mjs') => {
    if (kind === 'ts') written('my.ts', 'export const a = 1;');
    const { status, said: lines } = await train('grpo', '--import', written(`${Math.random()}other.${kind}`, text));
    expect([status, lines.length, lines.at(-1)]).toEqual([2, 1, expect.stringMatching(sentence)]);
  });
});

test('a syntax error of JavaScript has its file and line', () => {
  const file = join(mkdtempSync(join(tmpdir(), 'webgrpo-syntax-')), 'own loss.mjs');
  writeFileSync(file, '\n\nexport default (');
  expect(syntaxPlace(file, new SyntaxError('Unexpected end of input'))).toBe(` (${file}:3)`);
  expect(syntaxPlace(file, new Error('other'))).toBe('');
});

const ACTOR = { ppoMiniBatchSize: 2, optim: { lr: 1e-3 } };

test('a function that is registered trains by its name as the same function given to the trainer does', async () => {
  const slow: CustomLoss = ({ advantages, weights }) => ({
    loss: 0.25,
    dLogProbs: advantages.map((a, e) => -0.5 * weights[e] * a),
    metrics: { 'actor/mine': 7 },
  });
  registerPolicyLoss('by_function', slow);
  const history = async (more: object, loss?: CustomLoss) => {
    const config = resolveTrainConfig({
      ...{ name: 't', model: { path: 'm' }, rollout: { n: 4 }, actor: ACTOR },
      data: { trainBatchSize: 4, maxPromptLength: 100, maxResponseLength: 120, valMaxSamples: 2 },
      trainer: { totalTrainingSteps: 2, valBeforeTrain: false, testFreq: 0 },
      ...more,
    });
    const engine = new ScriptedEngine({ tokenizer, solve: solveWordProblem });
    const result = await new GrpoTrainer({ config, task: gsm8kToolTask(), engine, ...(loss && { loss }) }).fit();
    return result.history.map((line) => [line['actor/pg_loss'], line['actor/mine'], line['actor/grad_norm']]);
  };
  const given = await history({}, slow);
  expect(given[0].slice(0, 2)).toEqual([0.25, 7]);
  expect(await history({ actor: { ...ACTOR, policyLoss: { lossMode: 'by_function' } } })).toEqual(given);
  await expect(checkPolicyLoss(POLICY_LOSSES.by_function)).rejects.toThrow('gradient');
  registerPolicyLoss('by_function', { row });
  // Losses that are, or return, a promise.
  const never = () => new Promise<never>(() => undefined);
  const byAsync = async () => Promise.reject(new Error('late'));
  expect(() => registerPolicyLoss('by_async', byAsync as never)).toThrow(
    /^Policy loss "by_async" is an async function\. A/,
  );
  for (const [i, loss] of [never, () => byAsync(), () => ({ then: () => undefined })].entries()) {
    registerPolicyLoss(`by_promise${i}`, loss as never);
    const told = `Policy loss "by_promise${i}" returned a promise. A loss returns its gradients directly`;
    await expect(checkPolicyLoss(POLICY_LOSSES[`by_promise${i}`])).rejects.toThrow(told);
    await expect(history({ algorithm: { name: `by_promise${i}` } })).rejects.toThrow(told);
    await expect(checkPolicyLoss(loss as never)).rejects.toThrow('"custom" returned a promise');
  }
  await expect(checkPolicyLoss(byAsync as never)).rejects.toThrow('"custom" is an async function');
  const limited = { reward: { timeoutS: 0.05 } };
  await expect(history(limited, never as never)).rejects.toThrow(
    'The loss did not resolve in 0.05 s (reward.timeoutS).',
  );
  expect((await history({ algorithm: { name: 'by_function' } }))[0].slice(0, 2)).toEqual([0, undefined]);
});
