/**
 * Compares exports with the trainers' own sources, if a checkout is available:
 *   VERL_DIR=../verl TRL_DIR=../trl PEFT_DIR=../peft npm test -- unit test/unit/exportPeers.test.ts
 * Otherwise the tests are skipped. No part of the sources is installed or copied; python3 runs the parts that need Python. With
 * FULL_TESTS=1, TRL itself starts exported runs, if there is a Python with TRL. WRITE_PROMPTS=1 stores the prompts that TRL renders.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { exportRun } from '../../src/cli/commands/export.ts';
import type { Setting } from '../../src/cli/export/carry.ts';
import { verlRun } from '../../src/cli/export/verl.ts';
import { trlRun } from '../../src/cli/export/trl.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { POLICY_LOSSES } from '../../src/grpo/losses/index.ts';
import { RECIPES } from '../../src/grpo/config/recipes.ts';
import { saveAdapter } from '../../src/model/lora/adapter.ts';
import { LORA_MODULES } from '../../src/model/lora/config.ts';
import { CONFIG, exported, FIXTURE, type PeerIds, RUNS } from '../exportedPrompts.ts';

const { VERL_DIR: verl = '', TRL_DIR: trl = '', PEFT_DIR: peft = '' } = process.env;
const OFFLINE = { ...process.env, HF_HUB_OFFLINE: '1', CUDA_VISIBLE_DEVICES: '', NO_COLOR: '1' };
const text = readFileSync(CONFIG, 'utf8');
const config = (...overrides: string[]) => parseTrainConfig(text, { source: CONFIG, overrides });
/** Returns configs that together use every name that an export can write. */
const configs = () => [
  ...Object.keys(RECIPES).map((name) => config(`algorithm.name=${name}`, 'rollout.n=4')),
  ...Object.keys(POLICY_LOSSES).map((loss) => config(`actor.policyLoss.lossMode=${loss}`, 'rollout.n=4')),
  config(
    'actor.policyLoss.lossMode=sapo',
    'actor.policyLoss.tauPos=1',
    'actor.policyLoss.tauNeg=2',
    'rollout.minP=0.1',
  ),
  config('actor.useKlLoss=true', 'rollout.multiTurn.enable=false', 'actor.optim.lrWarmupSteps=3'),
];
const matches = (source: string, pattern: RegExp) => [...source.matchAll(pattern)].map(([, name]) => name);
const python = (code: string, ...args: string[]) =>
  execFileSync('python3', ['-c', code, ...args], { encoding: 'utf8', timeout: 600_000 });

const out = mkdtempSync(join(tmpdir(), 'webgrpo-peers-'));
beforeAll(async () => {
  if (!verl && !trl) return;
  const io = { json: true, result: () => {}, text: () => {} };
  for (const trainer of ['verl', 'trl']) {
    const flags = { out: join(out, trainer), config: CONFIG };
    const overrides = ['trainer.totalTrainingSteps=2', 'data.valMaxSamples=5'];
    await exportRun.run({ positionals: [trainer, 'checkpoints/gsm8k-tool'], overrides, flags }, io);
  }
});

describe.skipIf(!verl)('verl (skipped without VERL_DIR, a checkout of verl)', () => {
  const read = (path: string) => readFileSync(join(verl, 'verl', path), 'utf8');
  type Tree = { [key: string]: Tree | Setting };
  let tree: Tree = {};
  beforeAll(() => {
    tree = parse(read('trainer/config/_generated_ppo_trainer.yaml')) as Tree;
  });
  const at = (key: string): unknown =>
    key.split('.').reduce<unknown>((node, part) => (isTree(node) && part in node ? node[part] : MISSING), tree);
  const MISSING = Symbol('missing');
  const isTree = (node: unknown): node is Tree => typeof node === 'object' && node !== null && !Array.isArray(node);
  const kind = (value: unknown) => (Array.isArray(value) ? 'list' : isTree(value) ? 'tree' : typeof value);

  test('every override is in the tree, with a value of its kind', () => {
    const wrong = new Set<string>();
    for (const run of configs())
      for (const [key, value] of verlRun(run, '$HERE').overrides) {
        const there = at(key);
        if (there === MISSING) wrong.add(`${key} is not there`);
        // Null has no kind.
        else if (there !== null && value !== null && kind(there) !== kind(value))
          wrong.add(`${key} is ${JSON.stringify(there)}, we write ${JSON.stringify(value)}`);
      }
    expect([...wrong]).toEqual([]);
  });

  test('losses, estimators, aggregations and KL terms are registered', () => {
    const source = read('trainer/ppo/core_algos.py');
    const known: Record<string, string[]> = {
      'policy_loss.loss_mode': matches(source, /@register_policy_loss\("(\w+)"\)/g),
      'algorithm.adv_estimator': matches(source, /^ {4}[A-Z_]+ = "(\w+)"$/gm),
      loss_agg_mode: matches(source, /"((?:seq-mean|token)-[\w-]+)"/g),
      kl_loss_type: matches(source, /"(kl|k1|abs|mse|k2|low_var_kl|k3)"/g),
      'algorithm.kl_penalty': matches(source, /"(kl|k1|abs|mse|k2|low_var_kl|k3)"/g),
    };
    for (const run of configs())
      for (const [key, value] of verlRun(run, '$HERE').overrides)
        for (const [end, names] of Object.entries(known))
          if (key.endsWith(end)) expect(names, `${key}=${String(value)}`).toContain(String(value).replace(/\+$/, ''));
  });

  test('verl finds the reward function, and its reward manager can call it', () => {
    const code = `
import importlib.util, inspect, sys, ast, os
root, folder = sys.argv[1:3]
source = open(os.path.join(root, "verl/trainer/ppo/reward.py")).read()
assert 'reward_fn_config.get("path")' in source and 'reward_fn_config.get("name")' in source
manager = ast.parse(open(os.path.join(root, "verl/experimental/reward_loop/reward_manager/naive.py")).read())
calls = [n for n in ast.walk(manager) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "compute_score"]
names = {k.arg for c in calls for k in c.keywords if k.arg}
spec = importlib.util.spec_from_file_location("custom_module", os.path.join(folder, "reward.py"))
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
inspect.signature(module.compute_score).bind(**{n: None for n in names})
extra = {"split": "train", "index": 3, "num_turns": 2, "rollout_reward_scores": {}}
values = {"data_source": "webgrpo/gsm8k", "ground_truth": "7", "extra_info": extra}
print(sorted(names), [module.compute_score(solution_str=s, **values) for s in ("x #### 7", "#### 8", "7")])`;
    expect(python(code, verl, join(out, 'verl')).trim()).toBe(
      "['data_source', 'extra_info', 'ground_truth', 'solution_str'] [1.0, 0.0, 0.0]",
    );
  });

  test("the tool is a BaseTool of verl's, made from tools.yaml by its schemas", () => {
    const code = `
import asyncio, importlib.util, os, sys, types, json
root, folder = sys.argv[1:3]
sys.path.insert(0, folder)
def module(name, path=None):
    made = types.ModuleType(name); sys.modules[name] = made; made.__path__ = []
    if path:
        spec = importlib.util.spec_from_file_location(name, os.path.join(root, path))
        made = importlib.util.module_from_spec(spec); sys.modules[name] = made; spec.loader.exec_module(made)
    return made
for name in ("verl", "verl.tools", "verl.utils"): module(name)
module("verl.utils.rollout_trace").rollout_trace_op = lambda f: f
schemas = module("verl.tools.schemas", "verl/tools/schemas.py")
module("verl.tools.base_tool", "verl/tools/base_tool.py")
import contextlib, io, verl_tools
tool = json.loads(sys.argv[3])["tools"][0]
assert tool["class_name"] == "verl_tools.CalculatorTool" and tool["config"]["type"] == "native"
with contextlib.redirect_stdout(io.StringIO()):
    made = verl_tools.CalculatorTool(config=tool["config"], tool_schema=schemas.OpenAIFunctionToolSchema.model_validate(tool["tool_schema"]))
async def run():
    id, _ = await made.create()
    response, reward, metrics = await made.execute(id, {"expression": "48/2"})
    await made.release(id)
    return made.name, response.text, reward, metrics, await made.calc_reward(id)
print(asyncio.run(run()))`;
    const tools = parse(readFileSync(join(out, 'verl/tools.yaml'), 'utf8')) as unknown;
    expect(python(code, verl, join(out, 'verl'), JSON.stringify(tools)).trim()).toBe(
      "('calculator', '24', 0.0, {}, 0.0)",
    );
  });

  test('verl truncates long tool outputs on the same side as ours', () => {
    const source = read('experimental/agent_loop/tool_agent_loop.py');
    expect(source).toMatch(/side == "left":\s+tool_response_text = "\(truncated\)\.\.\." \+ tool_response_text\[-self/);
    const { overrides } = verlRun(config('rollout.multiTurn.toolResponseTruncateSide=right'), '$HERE');
    expect(Object.fromEntries(overrides)).toMatchObject({
      'actor_rollout_ref.rollout.multi_turn.tool_response_truncate_side': 'right',
    });
  });

  test('the columns are those that its data set and its reward manager read', () => {
    const code = read('utils/dataset/rl_dataset.py') + read('experimental/reward_loop/reward_manager/naive.py');
    for (const name of ['"prompt_key", "prompt"', '"extra_info"', '"index"', '"data_source"', '"ground_truth"'])
      expect(code).toContain(name);
  });
});

/** Prints the fields of all dataclasses in the given Python files, parsed by Python itself. */
const FIELDS = `
import ast, sys
print(" ".join(s.target.id for path in sys.argv[1:] for n in ast.walk(ast.parse(open(path).read())) if isinstance(n, ast.ClassDef) for s in n.body if isinstance(s, ast.AnnAssign)))`;

describe.skipIf(!trl)('TRL (skipped without TRL_DIR, a checkout of trl)', () => {
  // Some fields of transformers' TrainingArguments, which TRL's GRPOConfig extends. They exist since version 4.
  const TRAINING_ARGUMENTS = (
    'output_dir seed max_steps per_device_train_batch_size learning_rate adam_beta1 adam_beta2 adam_epsilon weight_decay ' +
    'max_grad_norm lr_scheduler_type warmup_steps logging_steps save_steps'
  ).split(' ');
  const file = () => join(trl, 'trl/trainer/grpo_config.py');

  test('every argument is a field of GRPOConfig', () => {
    const known = new Set([...TRAINING_ARGUMENTS, ...python(FIELDS, file()).trim().split(' ')]);
    const unknown = configs().flatMap((run) => Object.keys(trlRun(run).settings).filter((key) => !known.has(key)));
    expect([...new Set(unknown)]).toEqual([]);
  });

  test('losses and scales are among those that the trainer knows', () => {
    const source = readFileSync(file(), 'utf8') + readFileSync(join(trl, 'trl/trainer/grpo_trainer.py'), 'utf8');
    for (const run of configs()) {
      const { loss_type, scale_rewards, importance_sampling_level } = trlRun(run).settings;
      for (const value of [loss_type, scale_rewards, importance_sampling_level])
        expect(source).toContain(`"${String(value)}"`);
    }
  });

  test('GRPOTrainer takes what the script gives', () => {
    const source = readFileSync(join(trl, 'trl/trainer/grpo_trainer.py'), 'utf8');
    const init = /def __init__\(([\s\S]*?)\n {4}\):/.exec(source)![1];
    for (const name of ['model', 'args', 'reward_funcs', 'train_dataset', 'eval_dataset', 'tools'])
      expect(init).toMatch(new RegExp(`^ {8}${name}:`, 'm'));
  });
});

/**
 * Returns the path of a Python with TRL: TRL_PYTHON, or the cached one. CONTRIBUTING.md explains how to create its environment, which takes
 * gigabytes.
 */
function trlPython(): string | undefined {
  if (process.env['FULL_TESTS'] !== '1') return undefined;
  const candidates = [process.env['TRL_PYTHON'], 'node_modules/.cache/webgrpo/trl/bin/python'];
  const found = candidates.find((path) => path !== undefined && spawnSync(path, ['-c', 'import trl']).status === 0);
  return found && resolve(found);
}

/** Python code that renders prompts as TRL's trainer does in each exported train.py, and the equivalent for verl. */
const RENDER = `
import json, os, runpy, sys
from transformers import AutoTokenizer
import trl, yaml
ids = {}
tool = {"role": "tool", "name": "calculator", "content": "24"}
def capture(self, *args, **kwargs):
    prompt = self._tokenize_prompts([self.train_dataset[0]["prompt"]])[0][0]
    ids[os.getcwd()] = {"prompt": list(prompt), "turn": list(self._get_tool_suffix_ids([tool])) if self.tools else None}
trl.GRPOTrainer.train = capture
trl.GRPOTrainer.save_model = lambda *args, **kwargs: None
for folder in sys.argv[1:]:
    os.chdir(folder)
    if os.path.exists("train.py"):
        sys.path.insert(0, folder)
        for name in ("reward", "calculator"): sys.modules.pop(name, None)
        runpy.run_path("train.py", run_name="__main__")
        sys.path.remove(folder)
        continue
    from datasets import load_dataset
    tokenizer = AutoTokenizer.from_pretrained("model")
    tools = [t["tool_schema"] for t in yaml.safe_load(open("tools.yaml"))["tools"]] if os.path.exists("tools.yaml") else None
    more = {}
    for line in open("run.sh"):
        if "apply_chat_template_kwargs." in line:
            key, value = line.split("apply_chat_template_kwargs.")[1].split(" ")[0].strip('"').split("=")
            more[key] = value
    render = lambda messages, **given: tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **given)
    user = [{"role": "user", "content": ""}]
    one, two = render(user), render(user * 2)
    system = one[: len(one) - (len(two) - len(one))]
    prompt = load_dataset("parquet", data_files="data/train.parquet")["train"][0]["prompt"]
    turn = render([tool], add_generation_prompt=True, **more)[len(system):] if tools else None
    ids[folder] = {"prompt": render(prompt, tools=tools, add_generation_prompt=True, **more), "turn": turn}
print("IDS" + json.dumps(ids))`;

describe.skipIf(process.env['FULL_TESTS'] !== '1')('TRL itself (npm test -- --full)', () => {
  const none = 'no Python with TRL: set TRL_PYTHON, or see CONTRIBUTING.md';

  test('the prompts of TRL and verl for exported runs are the stored ones', async (context) => {
    const trlAt = trlPython();
    if (!trlAt) return context.skip(none);
    const runs: [key: string, run: Awaited<ReturnType<typeof exported>>][] = [];
    for (const peer of ['trl', 'verl'])
      for (const [name, overrides] of Object.entries(RUNS))
        runs.push([`${peer}: ${name}`, await exported(peer, name, overrides)]);
    const folders = runs.map(([, { out }]) => realpathSync(out));
    const made = spawnSync(trlAt, ['-c', RENDER, ...folders], { encoding: 'utf8', env: OFFLINE });
    expect(made.stderr).not.toMatch(/Traceback/);
    const ids = JSON.parse(/^IDS(.*)$/m.exec(made.stdout)![1]) as Record<string, PeerIds>;
    const found = Object.fromEntries(runs.map(([key, { template }], i) => [key, { template, ...ids[folders[i]] }]));
    if (process.env['WRITE_PROMPTS'] === '1') writeFileSync(FIXTURE, `${JSON.stringify(found)}\n`);
    expect(found).toEqual(JSON.parse(readFileSync(FIXTURE, 'utf8')));
  });

  test('TRL starts the default run, and two updates have our rewards', async (context) => {
    const trlAt = trlPython();
    if (!trlAt) return context.skip(none);
    const { out: folder } = await exported('trl', 'two updates', []);
    const { stdout, stderr } = spawnSync(trlAt, ['train.py'], { cwd: folder, encoding: 'utf8', env: OFFLINE });
    expect(stderr).not.toMatch(/Traceback/);
    const reward = Number(/'reward': '?([\d.]+)/.exec(stdout)![1]);
    expect(stdout.match(/'grad_norm'/g)).toHaveLength(2);
    // Mean reward of 128 samples. webgrpo's runs start at about 0.4 (standard error 0.04).
    expect(reward).toBeGreaterThan(0.2);
    expect(reward).toBeLessThan(0.6);
  });
});

describe.skipIf(!peft)('PEFT (skipped without PEFT_DIR, a checkout of peft)', () => {
  test('what we write into adapter_config.json are fields of LoraConfig', () => {
    const files = ['src/peft/tuners/lora/config.py', 'src/peft/config.py'].map((file) => join(peft, file));
    const fields = python(FIELDS, ...files)
      .trim()
      .split(' ');
    const lora = { rank: 2, alpha: 4, dropout: 0, useRslora: false, targetModules: LORA_MODULES, seed: 1 };
    const saved = saveAdapter({ lora, tensors: new Map(), baseModel: 'base' }).get('adapter_config.json')!;
    const keys = Object.keys(JSON.parse(new TextDecoder().decode(saved)) as object);
    expect(keys.filter((key) => !fields.includes(key))).toEqual([]);
    expect(keys).toContain('target_modules');
  });
});
