/**
 * Tests exported runs: verl has the exported settings, the Parquet files are readable, and the exported Python rewards compute the same
 * numbers.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parquetReadObjects } from 'hyparquet';
import { beforeAll, describe, expect, test } from 'vitest';
import { loadModelFiles } from '../../src/cli/run/checkpoints.ts';
import { openTask } from '../../src/cli/run/openTask.ts';
import { withChatTemplate } from '../../src/cli/run/session.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { encodePrompt, writesSchemas } from '../../src/rollout/agent/prompt.ts';
import { exported, FIXTURE, RUNS, type StoredIds } from '../exportedPrompts.ts';
import { hasPython } from '../python.ts';
import { exportRun } from '../../src/cli/commands/export.ts';
import { exportedTokenizerConfig } from '../../src/cli/export/chatTemplate.ts';
import { hydraWord, verlRun } from '../../src/cli/export/verl.ts';
import { pythonPattern, rewardOf } from '../../src/cli/export/reward.ts';
import { trlRun, trlScript } from '../../src/cli/export/trl.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { RECIPES } from '../../src/grpo/config/recipes.ts';
import { InputError } from '../../src/errors.ts';
import { readSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { trainProblem } from '../../src/tasks/gsm8k/task.ts';
import { extractAnswer } from '../../src/tasks/gsm8k/reward.ts';
import {
  comparisonOf,
  JSONL_REWARD_OPTIONS,
  type JsonlRewardName,
  type JsonlRewardOptions,
} from '../../src/extensions/tasks/jsonl/reward.ts';
import { calculate } from '../../src/tasks/tools/calculator.ts';

const MODEL = 'checkpoints/gsm8k-tool';
const CONFIG = 'configs/gsm8k-tool.yaml';
const folder = mkdtempSync(join(tmpdir(), 'webgrpo-export-'));
const config = (...overrides: string[]) =>
  parseTrainConfig(readFileSync(CONFIG, 'utf8'), { source: CONFIG, overrides });
const run = (...positionals: string[]) => ({
  to: async (out: string | undefined, ...overrides: string[]) => {
    let result: unknown;
    const io = { json: true, result: (value: unknown) => void (result = value), text: () => {} };
    await exportRun.run({ positionals, overrides, flags: { out, config: CONFIG } }, io);
    return result as { files: string[]; notCarried: string[] };
  },
});
const rows = (path: string) => {
  const bytes = readFileSync(join(folder, path));
  return parquetReadObjects({
    file: bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
  });
};

beforeAll(async () => {
  await run('verl', MODEL).to(join(folder, 'verl'), 'trainer.totalTrainingSteps=2', 'data.valMaxSamples=5');
  await run('trl', MODEL).to(join(folder, 'trl'), 'trainer.totalTrainingSteps=2', 'data.valMaxSamples=5');
});

test('every override is a name of verl, whatever the algorithm', () => {
  const known = JSON.parse(readFileSync('test/fixtures/verlKeys.json', 'utf8')) as { keys: string[] };
  for (const name of Object.keys(RECIPES)) {
    const { overrides } = verlRun(config(`algorithm.name=${name}`, 'rollout.n=4'), '$HERE');
    // `++` adds a key if verl's generated file lacks it, such as arguments of a reward manager.
    expect(overrides.map(([key]) => key).filter((key) => !key.startsWith('++') && !known.keys.includes(key))).toEqual(
      [],
    );
    expect(new Set(overrides.map(([key]) => key)).size).toBe(overrides.length);
  }
});

test("values equal our config's", () => {
  const { overrides, notCarried } = verlRun(
    config('actor.policyLoss.lossMode=dro', 'actor.policyLoss.droBeta=0.1', 'rollout.topK=0', 'rollout.minP=0.1'),
    '$HERE',
  );
  const of = Object.fromEntries(overrides);
  expect(of).toMatchObject({
    'data.train_batch_size': config().data.trainBatchSize,
    'actor_rollout_ref.actor.clip_ratio_high': config().actor.clipRatioHigh,
    'actor_rollout_ref.rollout.top_k': -1,
    'actor_rollout_ref.actor.policy_loss.loss_mode': 'dro',
    'trainer.save_freq': -1,
  });
  expect(notCarried).toContain('actor.policyLoss.lossMode dro: since verl 0.9.0.');
  expect(notCarried).toContain('rollout.minP 0.1: verl has no such setting.');
  expect(hydraWord(['a.betas', [0.9, 0.95]])).toBe("'a.betas=[0.9,0.95]'");
  expect(hydraWord(['a.path', '$HERE/model'])).toBe('"a.path=$HERE/model"');
});

test('TRL: batches and steps equal ours', () => {
  const { settings } = trlRun(config());
  const { data, rollout, trainer } = config();
  expect(settings).toMatchObject({ num_generations: rollout.n, loss_type: 'dapo' });
  const perDraw = Number(settings['per_device_train_batch_size']) * Number(settings['steps_per_generation']);
  expect(perDraw).toBe(data.trainBatchSize * rollout.n);
  expect(Number(settings['max_steps']) / Number(settings['steps_per_generation'])).toBe(trainer.totalTrainingSteps);
});

test('TRL: schedules, warm-up by share, template variables and truncation', () => {
  const of = (...overrides: string[]) => trlRun(config(...overrides));
  const linear = of('actor.optim.lrSchedulerType=linear', 'actor.optim.minLrRatio=0.1');
  expect(linear.settings['lr_scheduler_type']).toBe('linear');
  expect(linear.notCarried).toContain('actor.optim.minLrRatio 0.1: TRL has no such setting.');
  const updates = of().settings['max_steps'] as number;
  const share = of('actor.optim.lrWarmupStepsRatio=0.25');
  expect(share.settings).toMatchObject({ warmup_steps: updates / 4, lr_scheduler_type: 'constant_with_warmup' });
  expect(share.notCarried.join()).not.toContain('lrWarmupStepsRatio');
  const { max_steps, warmup_steps } = of('trainer.totalTrainingSteps=8', 'actor.optim.lrWarmupSteps=2').settings;
  expect(warmup_steps).toBe((max_steps as number) / 4);
  expect(of().settings).not.toHaveProperty('chat_template_kwargs');
  const thinking = trlScript(of('data.chatTemplateKwargs={enable_thinking: false}'), false);
  expect(thinking).toContain('chat_template_kwargs={"enable_thinking": False},');
  expect(of('data.truncation=left').notCarried.join()).toContain('data.truncation');
});

test('TRL: evaluation, and settings with other meanings, are exported or reported', () => {
  const of = (...overrides: string[]) => {
    const { settings, notCarried } = trlRun(config(...overrides));
    return { settings, said: notCarried.map((sentence) => sentence.split(':')[0]) };
  };
  const evaluated = { eval_strategy: 'steps', eval_steps: 40, eval_on_start: true, num_generations_eval: 1 };
  expect(of().settings).toMatchObject({ ...evaluated, per_device_eval_batch_size: 8 });
  expect(of().said.join()).not.toContain('rollout.valKwargs');
  expect(of('rollout.valKwargs.n=4', 'trainer.testFreq=3').settings).toMatchObject({
    eval_steps: 6,
    num_generations_eval: 4,
    per_device_eval_batch_size: 32,
  });
  expect(of('rollout.valKwargs.temperature=0').said).toContain('rollout.valKwargs.temperature 0');
  const never = of('trainer.testFreq=0', 'trainer.valBeforeTrain=false');
  expect(never.settings).not.toHaveProperty('eval_strategy');
  expect(never.settings).not.toHaveProperty('eval_steps');
  expect(never.said).toContain('trainer.testFreq 0');
  expect(of().said).toContain('actor.ppoMaxTokenLenPerGpu 4096');
  // By default a step has two updates. With ppoMiniBatchSize=16 it has one.
  expect(of().said).toEqual(expect.arrayContaining(['actor.shuffle true', 'actor.lossAggMode token-mean']));
  const one = of('actor.ppoMiniBatchSize=16', 'actor.shuffle=false').said;
  expect(one.filter((start) => /shuffle|lossAggMode/.test(start))).toEqual([]);
  expect(of('algorithm.name=grpo').said).not.toContain('actor.lossAggMode token-mean');
  const single = of('rollout.agent.defaultAgentLoop=single_turn');
  expect(single.settings).not.toHaveProperty('max_tool_calling_iterations');
  expect(single.said.join()).not.toContain('rollout.multiTurn');
  expect(of('rollout.multiTurn.format=glm').said).toContain('rollout.multiTurn.format glm');
});

test('tools and loops that neither trainer supports are named, and the folder contains no file of them', async () => {
  const javascript =
    'task.tools: the exported run does not call javascript; the shipped calculator alone is written in Python.';
  const single = ['rollout.agent.defaultAgentLoop=single_turn'];
  for (const peer of ['trl', 'verl']) {
    const both = ['task.tools=[calculator,javascript]', 'rollout.agent.defaultAgentLoop=mine'];
    const tools = await exported(peer, 'custom', both);
    expect(tools.notCarried).toContain(javascript);
    expect(tools.notCarried.join()).toContain('rollout.agent.defaultAgentLoop mine: a custom loop is not written');
    const { out, notCarried } = await exported(peer, 'single', single);
    expect(existsSync(join(out, 'calculator.py'))).toBe(false);
    expect(notCarried.join()).not.toContain('rollout.multiTurn');
    const start = readFileSync(join(out, peer === 'trl' ? 'train.py' : 'run.sh'), 'utf8');
    expect(start).not.toMatch(/calculator|tool_agent|multi_turn/);
    expect(readFileSync(join(out, 'README.md'), 'utf8')).toContain('Hugging Face format, float32');
    if (peer === 'verl')
      expect(readFileSync(join(tools.out, 'tools.yaml'), 'utf8').match(/class_name/g)).toHaveLength(1);
  }
  const half = join(folder, 'half');
  const io = { json: true, result: () => {}, text: () => {} };
  const flags = { out: half, config: CONFIG, dtype: 'float16' };
  await exportRun.run({ positionals: ['trl', MODEL], overrides: ['trainer.totalTrainingSteps=1'], flags }, io);
  expect(readFileSync(join(half, 'README.md'), 'utf8')).toContain('Hugging Face format, float16');
});

test('TRL: calls are parsed by a response template, unless the model has its own', async () => {
  const read = (out: string) =>
    JSON.parse(readFileSync(join(out, 'model/tokenizer_config.json'), 'utf8')) as { response_template?: object };
  const of = async (name: string, ...overrides: string[]) =>
    read((await exported('trl', name, overrides)).out).response_template;
  expect(await of('hermes')).toMatchObject({
    start_anchor: '<|im_start|>assistant\n',
    defaults: { role: 'assistant' },
  });
  expect(await of('glm', 'rollout.multiTurn.format=glm')).toBeUndefined();
  // Without tools, no response template is exported, because TRL would use it to remove calls from the text.
  expect(await of('one turn', 'rollout.multiTurn.enable=false')).toBeUndefined();
  const model = await loadModelFiles(MODEL);
  const own = { ...model, tokenizerConfigJson: { ...model.tokenizerConfigJson, response_template: { own: true } } };
  const written = exportedTokenizerConfig(own, config(), { tools: [], peer: 'trl' });
  expect(written).toMatchObject({ response_template: { own: true } });
});

test('the data are the problems that our run would use', async () => {
  const train = await rows('verl/data/train.parquet');
  expect(train).toHaveLength(2 * config().data.trainBatchSize);
  const { messages, answer } = trainProblem(3, config().seed);
  expect(train[3]).toEqual({
    data_source: 'webgrpo/gsm8k',
    prompt: messages,
    ability: 'math',
    reward_model: { style: 'rule', ground_truth: answer },
    extra_info: { split: 'train', index: 3n },
  });
  expect(await rows('verl/data/test.parquet')).toHaveLength(5);
  expect((await rows('trl/data/train.parquet'))[3]).toEqual({ prompt: messages, answer });
});

test('the exported model has the same weights', () => {
  const read = (path: string) =>
    [...readSafetensors(readFileSync(path))].map(([name, { shape, data }]) => {
      const hash = createHash('sha256').update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      return [name, shape, hash.digest('hex')];
    });
  expect(read(join(folder, 'verl/model/model.safetensors'))).toEqual(read(join(MODEL, 'model.safetensors')));
  expect(existsSync(join(folder, 'trl/model/tokenizer_config.json'))).toBe(true);
});

test.skipIf(process.platform === 'win32')('the exported script of verl is one of bash', () => {
  expect(() => execFileSync('bash', ['-n', join(folder, 'verl/run.sh')])).not.toThrow();
});

const isFull = process.env['FULL_TESTS'] === '1';
describe.each(['trl', 'verl'])('prompts of %s', (peer) => {
  // Without --full, each run is exported to one of the two.
  const runs = Object.entries(RUNS).filter((_, i) => isFull || i % 2 === Number(peer === 'verl'));
  const stored = JSON.parse(readFileSync(FIXTURE, 'utf8')) as Record<string, StoredIds>;

  test.each(runs)('%s: the ids that it makes of the exported template are ours', async (name, overrides) => {
    const { template, prompt, turn } = stored[`${peer}: ${name}`];
    const { template: written, notCarried } = await exported(peer, name, overrides);
    // If the exported template differs from the stored one, exportPeers.test.ts must store the token ids again.
    expect(written).toBe(template);
    const ours = config(...overrides);
    const { customChatTemplate, path } = ours.model;
    const { tokenizerJson, tokenizerConfigJson } = await withChatTemplate(
      await loadModelFiles(path),
      customChatTemplate,
    );
    const { chatTemplateKwargs } = ours.data;
    const tokenizer = new ChatTokenizer(tokenizerJson, tokenizerConfigJson, { chatTemplateKwargs });
    const task = await openTask(ours.task);
    const toolSchemasInPrompt = writesSchemas(ours.rollout, tokenizer);
    const first = ours.task.path === undefined ? 0 : Number(task.trainSize) - 1;
    const problem = await task.train(first, ours.seed);
    expect(prompt).toEqual([...encodePrompt({ tokenizer, problem, tools: task.tools ?? [], toolSchemasInPrompt })]);
    expect(turn === null).toBe(/single turn|no turns/.test(name));
    if (turn === null) return;
    const after = [...tokenizer.encodeContinuation([{ role: 'tool', content: '24' }])];
    const isCut = notCarried.some((sentence) => sentence.startsWith('rollout.multiTurn: verl leaves "\\n" out'));
    expect(isCut).toBe(peer === 'verl' && customChatTemplate !== undefined);
    expect(turn).toEqual(isCut ? after.slice(1) : after);
  });
});

test.skipIf(!hasPython)('the Python reward and calculator give our answers (skipped without python3)', () => {
  const texts = ['#### 12', 'x #### 1,200 y', '#### -3.5\n#### 7', 'none', `#### 1${'-'.repeat(320)}`, '#### $5'];
  const sums = [
    ...['48/2', '(3+4)*5', '-2*-3', '1/3', '2/0', '2+', '10/4*0.5', '7', '0-7/3', '2**3', '', ' ', '()', '(1'],
    ...['1)', '5 5', '05+1', '1e3', '0x10', '1_000', '1,000', '+1', '2//1', '7%2', '1j', '3 if 1 else 2'],
    ...['\u0663', '1.', '.5', '.', '1..2', '1+\n2', '1+\u00a02', '1\ufeff', '1+\u001c2', '1\u00852'],
    ...['\u{1d7d9}', '$5', '-.001', '2.675', '0.125', '-0.125', '-0', '1.005*1000', '45035996273704.97'],
    ...['999999999999999.9', '1000000000000000', '1000000000000001', '9'.repeat(200), '9'.repeat(201)],
    ...['\u{1d7d9}'.repeat(101), '('.repeat(200), '-'.repeat(199) + '1', '9'.repeat(190) + '*1e', '1/(1-1)+2('],
  ];
  const code = [
    'import sys, json; sys.path.insert(0, sys.argv[1])',
    'from reward import extract_answer, compute_score; from calculator import calculator',
    'texts, sums = json.loads(sys.argv[2])',
    'print(json.dumps([[extract_answer(t) for t in texts], [calculator(s) for s in sums], [compute_score("", "#### 4", a) for a in ("4", "5")]]))',
  ].join('\n');
  const args = ['-c', code, join(folder, 'verl'), JSON.stringify([texts, sums])];
  const [answers, values, scores] = JSON.parse(execFileSync('python3', args, { encoding: 'utf8' })) as [
    (string | null)[],
    string[],
    number[],
  ];
  expect(answers).toEqual(texts.map(extractAnswer));
  // Python cannot print an unpaired surrogate.
  const printable = (text: string) => text.replace(/[\ud800-\udfff]/, '\ufffd');
  expect(values.map((value, i) => [sums[i], value])).toEqual(sums.map((sum) => [sum, printable(calculate(sum))]));
  expect(scores).toEqual([1, 0]);
  for (const file of ['trl/train.py', 'verl/verl_tools.py'])
    execFileSync('python3', ['-c', 'import ast, sys; ast.parse(open(sys.argv[1]).read())', join(folder, file)]);
});

test('TRL: fresh adapters become a LoraConfig, verl and trained adapters are refused', async () => {
  const lora = [
    'model.loraRank=4',
    'model.loraAlpha=8',
    'model.targetModules=[v_proj,q_proj]',
    'model.loraDropout=0.1',
  ];
  const script = trlScript(trlRun(config(...lora)), false);
  expect(script).toContain('from peft import LoraConfig\n');
  expect(script).toContain(
    'peft_config=LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"], use_rslora=False, task_type="CAUSAL_LM"),',
  );
  expect(trlScript(trlRun(config()), true)).not.toMatch(/peft|LoraConfig/);
  expect(trlRun(config(...lora, 'model.quantization=int8')).notCarried.join()).toContain('model.quantization int8');
  await expect(run('verl', MODEL).to(join(folder, 'x'), 'model.loraRank=4')).rejects.toThrow(
    'model.loraRank is 4; adapters are exported to TRL alone. Run "webgrpo merge" first',
  );
  const trained = join(folder, 'trained');
  await expect(run('trl', MODEL).to(join(folder, 'x'), 'model.loraRank=4', `model.loraAdapterPath=${trained}`))
    .rejects //
    .toThrow(`${trained} is a trained adapter, which is not exported. Run "webgrpo merge" first`);
});

const asJsonl = (path: string, ...options: string[]) => [
  'task.name=jsonl',
  `task.path=${path}`,
  ...options.map((option) => `task.options.${option}`),
];

test('a JSONL task is exported with all its problems', async () => {
  const path = join(folder, 'capitals.jsonl');
  const lines = Array.from({ length: 16 }, (_, i) => JSON.stringify({ prompt: `Capital ${i}?`, answer: `City ${i}` }));
  writeFileSync(path, lines.join('\n'));
  const { out } = await exported('trl', 'jsonl', asJsonl(path, 'ignoreCase=true'));
  expect(readFileSync(join(out, 'reward.py'), 'utf8')).toMatch(/^REWARD = "exact"\nIGNORE_CASE = True$/m);
  const bytes = readFileSync(join(out, 'data/train.parquet'));
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  const answers = (await parquetReadObjects({ file })).map(({ answer }) => answer as string);
  expect(answers.toSorted()).toEqual(Array.from({ length: 14 }, (_, i) => `City ${i}`).toSorted());
});

test.each(['trl', 'verl'])('%s: problems that name another agent loop are counted', async (peer) => {
  const path = join(folder, 'loops.jsonl');
  const loops = ['single_turn', 'tool_agent', undefined, 'single_turn'];
  const lines = loops.map((loop, i) => JSON.stringify({ prompt: `${i}?`, answer: `${i}`, agent_name: loop }));
  writeFileSync(path, lines.join('\n'));
  const { notCarried } = await exported(peer, 'loops', asJsonl(path));
  expect(notCarried).toContain(
    'agent_name: 2 of 4 problems name another loop (single_turn); all run by rollout.agent.defaultAgentLoop.',
  );
});

const PATTERNS: [pattern: string, flags: string][] = [
  ['<answer>(.*?)</answer>', ''],
  ['<answer>(.*?)</answer>', 's'],
  ['^answer: (\\w+)$', 'im'],
  ['\\\\boxed{([^}]*)}', ''],
  ['(?<found>\\d+)$', ''],
  ['[[\\s,]+(\\S+)', ''],
  ['\\bis\\b (?!not)([^\\s.]+)', 'u'],
];
const RESPONSES = [
  ...['Paris', ' paris\u001c', '\ufeffParis\u00a0', 'Pa\u0301ris', 'P\u00e1ris', 'PARIS is it', '', 'no\nPARIS'],
  ...['<answer>7</answer>', '<answer>7\n</answer> <answer>8</answer>', 'Answer: Paris\u2028answer: 7\n'],
  ...['answer: \u00e9', '\\boxed{7}', 'x 12\n', 'x 12', '\u0663', '[ 7', 'a\u00a07', 'it is 7.', 'it is not 7'],
  ...['this 7', '\u00e97', '<answer>\n7</answer>', '1,200', '$-7.50', '7/14', '\\frac{7}{2}', '1e3', '-\u22127'],
  ...['CO2 7', 'm2', '10{,}000', '.5', '007', '7e-50', '3-7', '\u22127', '7e99', '0.0', '-0', '7.', '12 000'],
  ...['12\u00a0000', '7%', '2\u20447', '1e400', '(5)-7', `${'7'.repeat(30)}`],
];
const ANSWERS = ['Paris', '7', '12', 'P\u00e1ris', '-7', '1000', '12000', '0', '3.5', '', '8', '-7.5', '0.5', '7/2'];

test.skipIf(!hasPython)('the Python rewards of JSONL tasks are ours (skipped without python3)', () => {
  const options: Partial<JsonlRewardOptions & { reward: JsonlRewardName }>[] = [
    ...(['exact', 'contains'] as const).flatMap((reward) => [{ reward }, { reward, ignoreCase: true }]),
    { reward: 'number' },
    ...PATTERNS.map(([pattern, flags]) => ({ reward: 'regex' as const, pattern, flags })),
  ];
  const code = [
    'import sys, json',
    'modules, responses, answers = json.load(sys.stdin)',
    'out = []',
    'for text in modules:',
    '    space = {}; exec(text, space)',
    '    out.append([[space["compute_score"]("", r, a) for a in answers] for r in responses])',
    'print(json.dumps(out))',
  ].join('\n');
  const base = config('task.name=jsonl', 'task.path=x.jsonl');
  const modules = options.map((given) => rewardOf({ ...base, task: { ...base.task, options: given } }));
  const input = JSON.stringify([modules, RESPONSES, ANSWERS]);
  const scores = JSON.parse(execFileSync('python3', ['-c', code], { encoding: 'utf8', input })) as number[][][];
  options.forEach(({ reward = 'exact', ...given }, i) => {
    const { reward: compare } = comparisonOf(reward, { ...JSONL_REWARD_OPTIONS, ...given });
    const table = (score: (r: number, a: number) => number) =>
      RESPONSES.flatMap((response, r) => ANSWERS.map((answer, a) => [response, answer, score(r, a)]));
    const ours = table((r, a) => compare(RESPONSES[r], ANSWERS[a]).score);
    expect(
      table((r, a) => scores[i][r][a]),
      JSON.stringify(options[i]),
    ).toEqual(ours);
    expect(
      ours.some(([, , score]) => score === 1),
      JSON.stringify(options[i]),
    ).toBe(true);
  });
  for (const pattern of ['(?<=a)b', '\\p{L}', '[\\D]', '[]', '\\u{61}', '[^]'])
    expect(() => pythonPattern(pattern, 'u'), pattern).toThrow("which Python's re reads differently");
});

test('an export refuses what it cannot write', async () => {
  const refused = (promise: Promise<unknown>, sentence: string) =>
    expect(promise).rejects.toThrow(new InputError(sentence));
  await refused(
    run('ray', MODEL).to('x'),
    'The export target is "ray"; allowed: verl, trl, gguf. Write one of them after "export".',
  );
  await refused(run('verl').to('x'), 'No run was given. Give one run or checkpoint folder. --help shows an example.');
  await refused(run('verl', MODEL).to(undefined), '--out is missing. Give --out PATH.');
  await refused(run('verl', MODEL).to('src'), 'src exists already. Give --out another name, or delete it.');
});

/** Settings of tasks whose reward exists only in JavaScript. Without --full, each is exported to one of the two. */
const OWN_REWARDS = {
  'a module': ['task.module=./examples/task-module.js'],
  'a shipped task without a Python reward': ['task.name=countdown'],
  'a jsonl task with a module as reward': [
    ...['task.name=jsonl', 'task.path=examples/jsonl-task.jsonl', 'task.tools=calculator'],
    'task.options={reward: module, module: ./examples/replay-reward.js}',
  ],
};

describe.each(Object.entries(OWN_REWARDS).map(([name, overrides], i) => ({ name, overrides, i })))('$name', (own) => {
  const { name, overrides, i } = own;
  const peers = ['verl', 'trl'];
  test.each(isFull ? peers : [peers[i % 2]])(
    'is exported to %s with its problems and a stub of the reward',
    async (peer) => {
      const out = join(mkdtempSync(join(folder, 'own-')), peer);
      const sizes = [
        'trainer.totalTrainingSteps=1',
        'data.trainBatchSize=3',
        'actor.ppoMiniBatchSize=3',
        'data.valMaxSamples=2',
      ];
      const { files, notCarried } = await run(peer, MODEL).to(out, ...overrides, ...sizes);
      expect(files).toContain('model/model.safetensors');
      expect(files.includes('calculator.py')).toBe(name.includes('jsonl'));
      expect(notCarried.join('\n')).toMatch(
        /^The reward of .* is JavaScript: reward\.py raises NotImplementedError until you write it\./m,
      );
      const bytes = readFileSync(join(out, 'data/train.parquet'));
      const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
      const problems = readFileSync(join(out, 'data/train.jsonl'), 'utf8').trim().split('\n');
      expect(await parquetReadObjects({ file })).toHaveLength(problems.length);
      for (const line of problems) expect(JSON.parse(line)).toHaveProperty('answer');
      expect(readFileSync(join(out, 'reward.py'), 'utf8')).toMatch(
        /raise NotImplementedError\("The reward of .* Write it here/,
      );
      if (!hasPython) return;
      const called = spawnSync('python3', ['-c', 'import reward; reward.compute_score("", "1", "1")'], {
        cwd: out,
        encoding: 'utf8',
      });
      expect(called.stderr).toMatch(/NotImplementedError: The reward of .* is JavaScript\. Write it here in Python/);
    },
  );
});
