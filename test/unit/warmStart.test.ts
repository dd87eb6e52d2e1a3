import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { RunFolder } from '../../src/cli/run/runFolder.ts';
import { withWarmStart } from '../../src/cli/run/warmStart.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { parseSftConfig } from '../../src/grpo/config/text.ts';

const trainConfig = (path: string, defaultLocalDir: string) =>
  resolveTrainConfig({ name: 'x', model: { path }, trainer: { defaultLocalDir } });

test('a model that is no YAML stays as it is', async () => {
  const config = trainConfig('runs/other', 'runs');
  expect(await withWarmStart(config)).toBe(config);
});

test('a warm start that this very config has made is used again, beside the run', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-warm-'));
  const source = join(folder, 'sft.yaml');
  writeFileSync(source, 'name: warm\n');
  const overrides = [`trainer.defaultLocalDir=${folder}`];
  await RunFolder.create(join(folder, 'warm'), parseSftConfig('name: warm\n', { source, overrides }));
  mkdirSync(join(folder, 'warm', 'checkpoints', 'step-3'), { recursive: true });
  const config = await withWarmStart(trainConfig(source, folder));
  expect(config.model.path).toBe(join(folder, 'warm'));
});

test('a YAML that is not there is one sentence', async () => {
  await expect(withWarmStart(trainConfig('nope/sft.yaml', 'runs'))).rejects.toThrow(
    /^There is no folder .*nope\.$|no such/,
  );
});
