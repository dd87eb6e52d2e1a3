/** Tests a user's own losses, advantages, examples and tokenizers, in the library and on the command line. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  ChatTokenizer,
  checkPolicyLoss,
  type CustomLoss,
  defineLoss,
  freshModelConfig,
  packIds,
  POLICY_LOSSES,
  registerAdvantage,
  registerPolicyLoss,
  resolveSftConfig,
  resolveTrainConfig,
  sftExample,
  tokenizerOf,
} from '../../src/index.ts';
import { webgrpo } from '../commandLine.ts';

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
  expect(() => sftExample(tokenizer, messages.slice(0, 3))).toThrow('These messages are of: user, assistant, user.');
  expect(() => sftExample(tokenizer, messages.slice(1))).toThrow('a prompt and then turns');
  const [{ batch, entryGroup }] = packIds([Uint32Array.of(5, 6, 7), Uint32Array.of(8, 9)], 64);
  expect([...batch.targets]).toEqual([6, 7, 9]);
  expect([...entryGroup]).toEqual([0, 0, 1]);
});

test('--import registers before the config is read; a module without a default function is refused', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-import-'));
  const file = join(folder, 'mine.mjs');
  writeFileSync(
    file,
    "export default ({ registerPolicyLoss }) => registerPolicyLoss('from_file', { row: () => ({ loss: 0, grad: 0 }) });\n",
  );
  const out = join(folder, 'out');
  const asked = [
    'train',
    'configs/gsm8k-tool.yaml',
    'algorithm.name=from_file',
    `model.path=${out}/none`,
    `trainer.defaultLocalDir=${out}`,
  ];
  const said = async (...more: string[]) => (await webgrpo([...asked, ...more])).said.join('\n');
  expect(await said()).toMatch(/"algorithm\.name" is "from_file"; allowed/);
  const imported = await said('--import', file);
  expect(imported).not.toMatch(/"algorithm\.name" is/);
  expect(imported).toContain(`${out}/none`); // reports the next error
  const other = join(folder, 'other.mjs');
  writeFileSync(other, 'export const x = 1;\n');
  const refused = await webgrpo([...asked, '--import', other]);
  expect(refused.status).toBe(2);
  expect(refused.said.join('\n')).toContain('it has no default export that is a function');
  expect(await said('--import', 'none.mjs')).toContain('--import: there is no none.mjs.');
});
