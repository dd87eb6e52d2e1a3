/**
 * Tests the result in a link: decoding returns the encoded result up to quantisation, and no other text is accepted as a result. Tests also
 * from which hosts the run of a link would load files.
 */

import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { foreignHosts, linkOf } from '../../demo/state/address/address.ts';
import { decodeResult, encodeResult, type SharedResult } from '../../demo/state/address/share.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { rng } from '../random.ts';
import { stub } from '../stub.ts';

const run = (steps: number): SharedResult => {
  const noise = rng(1);
  const history = Array.from({ length: steps + 1 }, (_, step) => ({
    'training/global_step': step,
    ...(step > 0 && {
      'critic/score/mean': 0.6 + 0.38 * (1 - Math.exp(-step / 20)) + 0.03 * noise.uniform(),
      'actor/entropy': 0.2 * Math.exp(-step / 30) + 0.01 * noise.uniform(),
      'actor/ppo_kl': 0.001 * noise.uniform(),
      'actor/grad_norm': 1 + noise.uniform(),
      'response_length/mean': 60 + 5 * noise.uniform(),
      'response_length/p10': 30 + Math.round(5 * noise.uniform()),
      'response_length/p90': 90 + Math.round(5 * noise.uniform()),
    }),
    ...(step % 20 === 0 && { 'val-core/gsm8k/acc/mean@1': 0.39 + step / 200 }),
  }));
  return { history, adapter: 'SwiftShader', seconds: 480, trainedTokens: 612_345, changes: [] };
};

test('a run of 80 steps takes less than 1500 letters and survives a round trip', async () => {
  const sent = run(80);
  const text = await encodeResult(sent);
  expect(text.length).toBeLessThan(1500);
  const { history, ...facts } = await decodeResult(text);
  expect(facts).toEqual({ adapter: 'SwiftShader', seconds: 480, trainedTokens: 612_345, changes: [] });
  expect(history).toHaveLength(81);
  history.forEach((line, i) => {
    const was: Record<string, number | undefined> = sent.history[i];
    expect(line['training/global_step']).toBe(i);
    if (i > 0) expect(line['critic/score/mean']).toBeCloseTo(was['critic/score/mean']!, 4);
    if (i > 0) expect(line['response_length/mean']).toBeCloseTo(was['response_length/mean']!, 1);
    const passAt1 = was['val-core/gsm8k/acc/mean@1'];
    if (passAt1 === undefined) expect(line).not.toHaveProperty('val-core/shared/acc/mean@1');
    else expect(line['val-core/shared/acc/mean@1']).toBeCloseTo(passAt1, 4);
  });
});

test('two answers survive a round trip, long ones without their middle, and without control characters', async () => {
  const answer = (step: number, text: string) => ({ step, right: step > 0, text });
  const long = `\u{1f600}${'9'.repeat(700)} #### 45`;
  const given = { number: 7, problem: 'Ben had 53 toys.\u202e', before: answer(0, long), after: answer(80, '45') };
  const { comparison, changes } = await decodeResult(await encodeResult({ ...run(3), comparison: given }));
  expect(changes).toEqual([]);
  expect(comparison).toEqual({
    ...given,
    problem: 'Ben had 53 toys.',
    before: answer(0, `\u{1f600}${'9'.repeat(198)}\u2026${'9'.repeat(92)} #### 45`),
  });
  const change = { step: 2, rule: 'reward' as const, name: 'mine', code: '1' };
  const both = await decodeResult(await encodeResult({ ...run(3), comparison: given, changes: [change] }));
  expect([both.changes, both.comparison?.after]).toEqual([[change], given.after]);
});

const isFull = process.env['FULL_TESTS'] === '1';

test('any history survives a round trip', async () => {
  const value = fc.double({ min: -1e9, max: 1e9, noNaN: true });
  const line = fc.record(
    {
      'critic/score/mean': value,
      'actor/entropy': value,
      'val-core/x/acc/greedy': fc.double({ min: 0, max: 1, noNaN: true }),
    },
    { requiredKeys: [] },
  );
  const histories = fc.tuple(fc.array(line, { minLength: 1, maxLength: 60 }), fc.nat(1000), fc.string());
  await fc.assert(
    fc.asyncProperty(histories, async ([lines, first, adapter]) => {
      const history = lines.map((values, i) => ({ ...values, 'training/global_step': first + 2 * i }));
      const back = await decodeResult(
        await encodeResult({ history, adapter, seconds: 1, trainedTokens: 2, changes: [] }),
      );
      expect(back.history.map((one) => one['training/global_step'])).toEqual(
        history.map((one) => one['training/global_step']),
      );
      const scores = lines.flatMap((one) => one['critic/score/mean'] ?? []);
      const step = (Math.max(...scores) - Math.min(...scores)) / 65_535;
      back.history.forEach((one, i) => {
        const was = lines[i]['critic/score/mean'];
        if (was === undefined) expect(one).not.toHaveProperty('critic/score/mean');
        else expect(Math.abs(one['critic/score/mean'] - was)).toBeLessThanOrEqual(step + 256);
      });
    }),
    { numRuns: isFull ? 100 : 30 },
  );
});

test('changes during a run are in its link; a long rule is named without its code', async () => {
  const changes = (code: string) => [
    { step: 1, rule: 'reward' as const, name: 'reward guessing', code },
    { step: 5, key: 'actor.optim.lr' as const, from: 3e-4, to: 1e-4 },
  ];
  const back = async (code: string) =>
    (await decodeResult(await encodeResult({ ...run(80), changes: changes(code) }))).changes;
  expect(await back('export const reward = () => 1;')).toEqual(changes('export const reward = () => 1;'));
  expect(await back('// long\n'.repeat(9000))).toEqual(changes(''));
});

test('a long run is thinned, and keeps its ends and 100 evaluations', async () => {
  const sent = run(5000);
  const { history } = await decodeResult(await encodeResult(sent));
  expect(history.length).toBeLessThanOrEqual(400);
  expect(history[0]['training/global_step']).toBe(0);
  expect(history.at(-1)!['training/global_step']).toBe(5000);
  expect(history.filter((line) => 'val-core/shared/acc/mean@1' in line).length).toBeGreaterThanOrEqual(100);
});

test('a long GPU name is cut, so that its link can be read', async () => {
  const sent = { ...run(3), adapter: 'GPU '.repeat(30) };
  expect((await decodeResult(await encodeResult(sent))).adapter).toBe('GPU '.repeat(20));
});

const DAMAGED = /^The result in this link is damaged \(.+\)\. Copy the whole link again\.$/;

test('no other text is accepted as a result: it ends in one error message, never another error', async () => {
  const whole = await encodeResult(run(80));
  const cut = fc.nat(whole.length - 1).map((at) => whole.slice(0, at));
  const changed = fc
    .tuple(fc.nat(whole.length - 1), fc.constantFrom(...'AZaz09-_'))
    .map(([at, letter]) => whole.slice(0, at) + letter + whole.slice(at + 1));
  const texts = fc.oneof(fc.string(), fc.base64String(), cut, changed, fc.constant('<img src=x onerror=alert(1)>'));
  await fc.assert(
    fc.asyncProperty(texts, async (text) => {
      const result = await decodeResult(text).catch((error: Error) => error);
      if (result instanceof Error) {
        expect(result.name).toBe('InputError');
        expect(result.message).toMatch(DAMAGED);
      } else {
        expect(result.history.length).toBeGreaterThan(0);
        for (const line of result.history)
          for (const value of Object.values(line)) expect(Number.isFinite(value)).toBe(true);
      }
    }),
    { numRuns: isFull ? 300 : 100 },
  );
});

const packed = (...bytes: number[]) => deflated(Uint8Array.from(bytes));

const deflated = async (bytes: Uint8Array<ArrayBuffer>) => {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream('deflate-raw'));
  const packed = new Uint8Array(await new Response(stream).arrayBuffer());
  return Buffer.from([1, ...packed]).toString('base64url');
};

test.each([
  ['a bomb', () => deflated(new Uint8Array(1_000_000)), 'it is too large'],
  ['another beginning', () => Promise.resolve('AAAA'), 'it does not begin as a link of this page does'],
  ['a million lines', () => packed(0, 1, 1, 192, 132, 61), 'a number in it is too large'],
  ['steps that stand still', () => packed(0, 1, 1, 2, 5, 0), 'steps are not increasing'],
  ['a name that turns the text', () => packed(3, 0xe2, 0x80, 0xae, 1, 1, 1, 1), 'the GPU name is invalid'],
  ['no end', () => packed(0, 1, 1, 3, 1, 1), 'it is cut off'],
  ['no step', () => packed(0, 1, 1, 0, ...new Uint8Array(10)), 'it has no steps'],
  [
    'an infinite curve',
    () => packed(0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 128, 127, 1, 1),
    'a curve has no value range',
  ],
])('%s is refused', async (_, text, why) => {
  await expect(text().then(decodeResult)).rejects.toThrow(`damaged (${why})`);
});

test('a link has the hub of its run, not that of the address', () => {
  vi.stubGlobal('location', { href: 'https://page/?seed=4&hub=https://one&autostart' });
  const settings = new URLSearchParams({ seed: '5' });
  expect(linkOf(settings, 'https://two', 'x')).toBe('https://page/?seed=5&hub=https%3A%2F%2Ftwo#r=x');
  expect(linkOf(settings, undefined)).toBe('https://page/?seed=5');
  vi.unstubAllGlobals();
});

test('a run loads from the hosts of its model, its judge and its template, unless they are of the page', () => {
  vi.stubGlobal('location', { host: 'page' });
  const hosts = (path: string, checkpoint?: string, customChatTemplate?: string) =>
    foreignHosts(
      stub<TrainConfig>({ model: { path, customChatTemplate }, reward: { judge: { checkpoint } } }),
      'https://hub',
    );
  const own = 'checkpoints/gsm8k-tool';
  expect(hosts(own, own, 'https://page/chat.jinja')).toEqual([]);
  expect(hosts(own, 'org/judge', 'https://one/chat.jinja')).toEqual(['hub', 'one']);
  expect(hosts('org/model', 'https://two/judge.gguf')).toEqual(['hub', 'two']);
  vi.unstubAllGlobals();
});
