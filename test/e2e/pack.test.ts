/**
 * Tests the packed library as a user installs it: README's example in an empty Vite project, two bundlers other than Vite, the command line
 * in an empty folder, and the files of the tarball.
 */

import { spawn, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, type Page } from '@playwright/test';
import { createServer, preview, version as viteVersion } from 'vite';
import { address, expectState, isFull, test, TINY } from './demo.ts';
import { BUNDLERS, buildWith, installProject, pack, serveFolder } from '../../scripts/lib/bundlers.mjs';

let project: string;
let installed: string;
let tarball: string;

/** Runs a command and returns its standard output. Throws with its output if it fails. */
function run(command: string, args: string[], cwd: string): string {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  if (status !== 0)
    throw new Error(
      `${[command, ...args].join(' ')} ended with ${status}:\n${stdout.slice(-2000)}${stderr.slice(-2000)}`,
    );
  return stdout;
}

/** Returns the code block of README that follows a marker. */
function exampleOf(marker: string): string {
  const [, code] = new RegExp(`<!-- ${marker} -->\n+\`\`\`\\w+\n([^]*?)\`\`\``).exec(
    readFileSync('README.md', 'utf8'),
  )!;
  return code;
}

/** Files of a project of `npm create vite -- --template vanilla-ts` that affect type checking and serving. */
const TEMPLATE = {
  'index.html':
    '<!doctype html>\n<html lang="en"><body><div id="app"></div><script type="module" src="/src/main.ts"></script></body></html>\n',
  'tsconfig.json': JSON.stringify({
    compilerOptions: {
      ...{ target: 'es2023', module: 'esnext', lib: ['ES2023', 'DOM'], types: ['vite/client'], skipLibCheck: true },
      ...{ allowArbitraryExtensions: true, moduleResolution: 'bundler', allowImportingTsExtensions: true },
      ...{ verbatimModuleSyntax: true, moduleDetection: 'force', noEmit: true, noUnusedLocals: true },
      ...{ noUnusedParameters: true, erasableSyntaxOnly: true, noFallthroughCasesInSwitch: true },
      // `strict` is not a part of the template, but careful users add it.
      strict: true,
    },
    include: ['src/main.ts'],
  }),
};

test.beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'webgrpo-pack-'));
  run(process.execPath, ['scripts/build.mjs'], resolve('.'));
  const packages = [
    ...(isFull ? ['esbuild', 'webpack'] : []).flatMap((name) => BUNDLERS[name].packages),
    ...['publint@0.3', '@arethetypeswrong/cli@0.18'],
  ];
  tarball = pack(resolve('.'), project);
  installProject({ root: resolve('.'), folder: project, tarball, packages: [...packages, `vite@${viteVersion}`] });
  installed = join(project, 'node_modules', 'webgrpo');
  for (const [file, text] of Object.entries(TEMPLATE)) writeFileSync(join(project, file), text);
  writeFileSync(join(project, 'src', 'main.ts'), exampleOf('src/main.ts'));
});

test.afterAll(() => rmSync(project, { recursive: true, force: true }));

test('the installed package has no heavy dependency', () => {
  const names = readdirSync(join(project, 'node_modules'));
  expect(names).toContain('webgrpo');
  for (const heavy of ['@tensorflow', '@xenova', 'webgpu', 'playwright']) expect(names).not.toContain(heavy);
});

test('the tarball holds what its documents link to, and nothing of the benchmark', () => {
  const files = readdirSync(installed, { recursive: true, encoding: 'utf8' });
  const documents = files.filter((file) => file.endsWith('.md') && !file.includes('node_modules'));
  expect(documents).toContain('README.md');
  const dead = documents.flatMap((file) =>
    [...readFileSync(join(installed, file), 'utf8').matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)]
      .map(([, target]) => target)
      .filter((target) => !existsSync(join(installed, file, '..', target)))
      .map((target) => `${file}: ${target}`),
  );
  expect(dead).toEqual([]);
  expect(files.filter((file) => /^dist.*(bench|jaxjs|train-|quickjs.*map)/.test(file))).toEqual([]);
});

test('every entry loads in Node, by import and by require', () => {
  const { exports } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as { exports: object };
  const names = Object.keys(exports).filter(
    (name) => !name.includes('*') && !['./worker', './playwright', './package.json'].includes(name),
  );
  const imports = names.map((name) => `await import(${JSON.stringify(join('webgrpo', name))});`);
  run(process.execPath, ['--input-type=module', '--eval', imports.join('\n')], project);
  // require() can load ES modules since Node 22.12. In older versions, it must at least find the files.
  const resolved = [...names, './package.json'].map(
    (name) => `require.resolve(${JSON.stringify(join('webgrpo', name))});`,
  );
  run(process.execPath, ['--input-type=commonjs', '--eval', resolved.join('\n')], project);
});

test('publint and attw report nothing about the package', () => {
  for (const args of [['publint', 'run', '--strict'], ['attw']])
    run(join(project, 'node_modules', '.bin', args[0]), [...args.slice(1), tarball], resolve('.'));
});

/**
 * Returns TypeScript code that compares the printed types of configs with the types inferred from the schemas.
 * @param types the package's folder of types
 */
const inputsCheck = (types: string): string => `
import type { TRAIN_SCHEMA } from '${types}/src/grpo/config/schema/index.ts';
import type { SFT_SCHEMA } from '${types}/src/extensions/sft/schema.ts';
import type { InferInput } from 'valibot';
import type { SftConfigInput, TrainConfigInput } from 'webgrpo';

/** Converts intersections, which the schemas infer, to plain objects at any depth. */
type Flat<T> = T extends object ? { [K in keyof T]: Flat<T[K]> } : T;
/**
 * True for identical types, including optional keys. A check of assignability in both directions would not detect a missing optional key.
 */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
type Both<A, B> = [A, B] extends [B, A] ? Same<Flat<A>, Flat<B>> : false;

export const train: Both<TrainConfigInput, InferInput<typeof TRAIN_SCHEMA>> = true;
export const sft: Both<SftConfigInput, InferInput<typeof SFT_SCHEMA>> = true;
// @ts-expect-error: a key is missing
export const missing: Both<Omit<SftConfigInput, 'engine'>, InferInput<typeof SFT_SCHEMA>> = true;
`;

/** Checks the types of all dependencies too (skipLibCheck: false), as the strictest projects do. */
for (const [moduleResolution, module] of [
  ['bundler', 'esnext'],
  ['nodenext', 'nodenext'],
])
  test(`types of every entry and of the examples compile under ${moduleResolution}`, () => {
    const folder = join(project, `types-${moduleResolution}`);
    cpSync('examples', folder, { recursive: true, filter: (file) => !/\.\w+$/.test(file) || file.endsWith('.ts') });
    const { exports } = JSON.parse(readFileSync('package.json', 'utf8')) as { exports: Record<string, object> };
    // The entry `./playwright` is excluded, because Playwright's own types need those of Node. Another test compiles that entry.
    const isChecked = (name: string) => 'types' in Object(exports[name]) && name !== './playwright';
    const entries = Object.keys(exports).filter(isChecked);
    const imports = entries.map((name, i) => `import * as entry${i} from '${join('webgrpo', name)}';\n`);
    const all = `export const all: object[] = [${entries.map((_, i) => `entry${i}`).join(', ')}];\n`;
    writeFileSync(join(folder, 'entries.ts'), imports.join('') + all);
    writeFileSync(join(folder, 'inputs.ts'), inputsCheck('../node_modules/webgrpo/dist/types'));
    // inputs.ts imports valibot, which npm puts into webgrpo's own folder if another package of the project excludes its version.
    const [own, shared] = [installed, project].map((of) => join(of, 'node_modules', 'valibot'));
    if (!existsSync(shared)) symlinkSync(own, shared, 'junction');
    const compilerOptions = {
      ...{ strict: true, skipLibCheck: false, noEmit: true, types: [], moduleResolution, module },
      ...{ allowImportingTsExtensions: true },
      ...{ target: 'es2023', lib: ['ES2023', 'DOM', 'DOM.Iterable', 'DOM.AsyncIterable'] },
    };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }));
    run(process.execPath, [resolve('node_modules/typescript/bin/tsc'), '-p', folder], project);
  });

test("README's example type-checks as pasted", () => {
  run(process.execPath, [resolve('node_modules/typescript/bin/tsc'), '-p', project], project);
});

/**
 * Returns the rewards that README's example prints, step by step, until `steps` steps are printed. If Vite reloads the page, the list
 * restarts.
 */
async function rewardsOf(page: Page, address: string, steps: number): Promise<number[]> {
  const rewards: number[] = [];
  let failure: string | undefined;
  page.on('load', () => void rewards.splice(0));
  page.on('pageerror', (error) => (failure = error.message));
  page.on('console', (message) => {
    const reward = /^step [1-9]\d*: mean reward ([\d.]+)/.exec(message.text())?.[1];
    if (reward !== undefined) rewards.push(Number(reward));
  });
  await page.goto(address);
  await expect.poll(() => failure ?? rewards.length >= steps).toBe(true);
  return rewards;
}

function expectRise(rewards: number[]): void {
  const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  expect(mean(rewards.slice(-3)), `mean rewards ${rewards.join(' ')}`).toBeGreaterThan(mean(rewards.slice(0, 2)) + 0.3);
}

test("README's example learns under vite dev", async ({ page }) => {
  test.skip(!isFull, 'learns for ten steps: npm test -- --full');
  const server = await createServer({
    root: project,
    configFile: false,
    logLevel: 'silent',
    server: { host: '127.0.0.1', port: 0 },
  });
  await server.listen();
  try {
    expectRise(await rewardsOf(page, server.resolvedUrls!.local[0], 10));
  } finally {
    await server.close();
  }
});

// README's example, built and served in other ways than by Vite's development server. It suffices that training starts; with --full, the
// rewards must rise too.
test("README's example builds, and trains under vite preview", async ({ page }) => {
  run(
    process.execPath,
    ['node_modules/vite/bin/vite.js', 'build', '--outDir', 'dist-vite', '--logLevel', 'warn'],
    project,
  );
  const server = await preview({
    root: project,
    configFile: false,
    logLevel: 'silent',
    build: { outDir: 'dist-vite' },
    preview: { host: '127.0.0.1', port: 0 },
  });
  try {
    const rewards = await rewardsOf(page, server.resolvedUrls!.local[0], isFull ? 10 : 2);
    if (isFull) expectRise(rewards);
  } finally {
    await server.close();
  }
});

for (const [name, mode] of [
  ['esbuild', '?local'],
  ['webpack', '?worker'],
]) {
  test(`${name} builds it without a warning, and its page trains (${mode})`, async ({ page }) => {
    test.skip(!isFull, 'installs two bundlers: npm test -- --full');
    const folder = join(project, name);
    mkdirSync(folder);
    for (const file of ['src', 'package.json', 'main.source.js'])
      cpSync(join(project, file), join(folder, file), { recursive: true });
    const server = await serveFolder(buildWith(name, folder, project));
    try {
      await page.goto(server.address + mode);
      await expect(page).toHaveTitle(/^(done|failed)/);
      const title = await page.title();
      expect(title).toMatch(/^done/);
      const { entropies, refused } = JSON.parse(title.slice(5)) as { entropies: number[]; refused: string };
      expect(entropies).toHaveLength(2);
      for (const entropy of entropies) expect(entropy).toBeGreaterThan(0);
      expect(refused).toBe(
        "/no-such-folder/config.json is an HTML page and not the checkpoint's config.json: the server has no such file and answers " +
          'with its start page. Put the checkpoint where the server finds it (Vite: the folder public/), or correct the address.',
      );
    } finally {
      server.close();
    }
  });
}

test('the built page trains under its Content Security Policy', async ({ page }) => {
  const refused: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error') refused.push(message.text());
  });
  const { address: origin, close } = await serveFolder(resolve('dist/demo'));
  try {
    await page.goto(new URL(address({ ...TINY, steps: 1 }), origin).href);
    await page.getByRole('button', { name: 'Start' }).click();
    await expectState(page, 'done');
    expect(refused).toEqual([]);
  } finally {
    close();
  }
});

test('no build has the scripted engine of the tests', () => {
  const code = (folder: string) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => /\.(js|mjs|html)$/.test(name));
  const files = code('dist').map((name) => join('dist', name));
  expect(files.filter((name) => readFileSync(name, 'utf8').includes('scripted-engine'))).toEqual([]);
  expect(files.length).toBeGreaterThan(10);
});

test('the built page says why it cannot run from file://', async ({ page }) => {
  await page.goto(`file://${resolve('dist/demo/index.html')}`);
  await expect(page.locator('#adapter-place')).toHaveText(/opened as a file.*Serve its folder over HTTP/);
});

test('examples/playwright compiles and passes in an empty folder, and shows the course of a run that does not learn', () => {
  test.skip(!isFull, 'learns for ten steps: npm test -- --full');
  const folder = join(project, 'playwright');
  cpSync('examples/playwright', folder, { recursive: true });
  for (const name of ['@playwright/test', 'playwright', 'playwright-core'])
    cpSync(resolve('node_modules', name), join(project, 'node_modules', name), { recursive: true });
  const spec = readFileSync(join(folder, 'learns.spec.ts'), 'utf8');
  const hopeless = spec.replace('lr: 1e-3', 'lr: 1e-9').replace('totalTrainingSteps: 10', 'totalTrainingSteps: 2');
  writeFileSync(join(folder, 'hopeless.spec.ts'), hopeless.replace('atLeast: 0.6, last: 3', 'atLeast: 2'));
  const compilerOptions = {
    ...{ strict: true, skipLibCheck: true, noEmit: true, types: [], moduleResolution: 'nodenext', module: 'nodenext' },
    ...{ target: 'es2023', lib: ['ES2023', 'DOM', 'DOM.Iterable', 'DOM.AsyncIterable'] },
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }));
  run(process.execPath, [resolve('node_modules/typescript/bin/tsc'), '-p', folder], project);
  const cli = join(project, 'node_modules', '@playwright/test', 'cli.js');
  // With this runner's environment variables, the Playwright that is started here would act as a worker of this runner.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(PW|PLAYWRIGHT|TEST_)/.test(name)));
  const { status, stdout } = spawnSync(process.execPath, [cli, 'test', '--reporter=list', '--workers=1'], {
    ...{ cwd: folder, encoding: 'utf8', env: { ...env, FORCE_COLOR: '0' } },
  });
  expect(stdout).toMatch(/1 failed[^]*1 passed/);
  expect(stdout).toMatch(
    /critic\/score\/mean was [\d.]+ at first, and its last value is [\d.]+[^]*\n +step 2 +[\d.]+ +#/,
  );
  expect(stdout).toMatch(/attachment #\d: report\.html/);
  expect(status).toBe(1);
});

test('the installed command line knows what --import registers by the installed library', () => {
  for (const file of ['own-loop.ts', 'batch-loss.js']) cpSync(join('examples', file), join(project, file));
  const words = ['train', 'configs/gsm8k-tool.yaml', 'model.path=none', 'algorithm.name=by_batch'];
  const imported = ['--import', './own-loop.ts', '--import', './batch-loss.js'];
  const args = [join(installed, 'dist/cli/bin.js'), ...words, 'rollout.agent.defaultAgentLoop=self_check', ...imported];
  const { status, stderr } = spawnSync(process.execPath, args, { cwd: project, encoding: 'utf8' });
  // The registered loop is accepted, so the next mistake is reported: the checkpoint folder is missing.
  expect([status, stderr]).toEqual([2, expect.stringContaining('The checkpoint folder none does not exist.')]);
  const refused = (name: string, text: string) => {
    mkdirSync(join(project, 'wrong'), { recursive: true });
    writeFileSync(join(project, 'wrong', 'package.json'), '{ "type": "commonjs" }');
    writeFileSync(join(project, 'wrong', name), text);
    const wrong = [...args.slice(0, 5), '--import', `./wrong/${name}`];
    const ended = spawnSync(process.execPath, wrong, { cwd: project, encoding: 'utf8' });
    return [ended.status, ended.stderr.trim().split('\n').at(-1)];
  };
  // Node alone would end with 13 and without a word.
  expect(refused('never.mjs', 'export default () => new Promise(() => {});')).toEqual([
    2,
    'The default function of --import ./wrong/never.mjs waits for a promise that can never settle, because nothing runs any more. Correct the file.',
  ]);
  expect(refused('exits.mjs', 'export default function mine() { process.exit(0); }')).toEqual([
    2,
    expect.stringMatching(
      /^process\.exit\(0\) was called while "webgrpo train" was running, by mine \(\S+exits\.mjs:1:\d+\)\. Throw /,
    ),
  ]);
  const named = /does not load: Unexpected token 'export' \(\S+:1\)\. Name the file \.mjs, or write "type": "module"/;
  expect(refused('mine.js', 'export default () => 1;')).toEqual([2, expect.stringMatching(named)]);
  const other = /does not load: .*\. Give a \.js, \.mjs or \.ts file\.$/;
  expect(refused('mine.json', '{}')).toEqual([2, expect.stringMatching(other)]);
});

/** Runs the installed command line as npx does, with the optional peer dependency that Node needs. */
async function webgrpo(cwd: string, ...args: string[]) {
  const { VK_ICD_FILENAMES: _, ...env } = process.env;
  for (const name of ['webgpu', 'debug', 'ms'])
    cpSync(resolve('node_modules', name), join(project, 'node_modules', name), { recursive: true });
  const child = spawn(process.execPath, [join(installed, 'dist/cli/bin.js'), ...args], { cwd, env });
  let [out, err] = ['', ''];
  child.stdout.on('data', (text) => (out += text));
  child.stderr.on('data', (text) => (err += text));
  const code = await new Promise((done) => child.on('exit', done));
  expect(code, err).toBe(0);
  return { out, err };
}

test('the command line evaluates a shipped recipe in an empty folder, and finds SwiftShader', async () => {
  test.skip(!isFull, 'evaluates by a real engine: npm test -- --full');
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-empty-'));
  const { out, err } = await webgrpo(folder, 'eval', 'configs/gsm8k-tool.yaml', 'data.valMaxSamples=8', '--json');
  rmSync(folder, { recursive: true, force: true });
  expect(JSON.parse(out)).toHaveProperty('metrics');
  if (process.env['VK_ICD_FILENAMES']?.includes('swiftshader')) expect(err).toContain('SwiftShader');
});

/** Replaces the problems and the tool of the template's task by a task that sorts three digits with a tool `min`. */
const SORT = `
const problem = (n) => ({
  id: n.join(' '),
  messages: prompt(\`Sort: \${n.join(' ')}\`),
  answer: n.toSorted((a, b) => a - b).join(' '),
});
const triples = Array.from({ length: 1000 }, (_, i) => [i % 10, Math.floor(i / 10) % 10, Math.floor(i / 100)]);
const different = triples.filter((n) => new Set(n).size === 3);
const training = different.filter((_, i) => i % 5 !== 0).map(problem);
const heldOut = different.filter((_, i) => i % 5 === 0).map(problem);
export const min = {
  name: 'min',
  description: 'Returns the smallest of some numbers.',
  parameters: { type: 'object', properties: { numbers: { type: 'string' } }, required: ['numbers'] },
  execute: ({ numbers }) => String(Math.min(...String(numbers).split(' ').map(Number))),
};
`;
const SORTED = `demonstrate({ id, answer }, rng, errorRate) {
    const [first, second] = answer.split(' ');
    const rest = id.split(' ').filter((digit) => digit !== first).join(' ');
    return [
      { role: 'assistant', content: call(min, { numbers: id }) },
      { role: 'tool', content: first },
      { role: 'assistant', content: call(min, { numbers: rest }) },
      { role: 'tool', content: second },
      { role: 'assistant', content: rng.uniform() < errorRate ? id : answer },
    ];
  },
};
`;

test('a task with a tool of its own learns from what init writes: imitation, then GRPO; its run is evaluated and asked', async () => {
  test.skip(!isFull, 'imitates for 200 steps and trains for 20: npm test -- --full');
  test.slow();
  await webgrpo(project, 'init', 'sort3', '--model', 'sft.yaml');
  const folder = join(project, 'sort3');
  const file = join(folder, 'task.mjs');
  const written = readFileSync(file, 'utf8')
    .replace(/\/\*\* @param \{number\} a @param[^]*?(?=\/\*\* Returns a tool call)/, () => SORT)
    .replace('tools: [calculator]', 'tools: [min]')
    .replace('response.trim().endsWith(`#### ${problem.answer}`)', 'response.trim() === problem.answer')
    .replace(/demonstrate\([^]*$/, () => SORTED);
  writeFileSync(file, written);
  run(process.execPath, ['--test'], folder);
  const { err } = await webgrpo(folder, 'train', 'config.yaml', 'trainer.totalTrainingSteps=20', 'trainer.testFreq=20');
  expect(err).toContain('warm start: sft.yaml first');
  const said = [...err.matchAll(/^step \d+\/20 .*pass@1 ([\d.]+)/gm)].map(([, passed]) => Number(passed));
  expect(said.at(-1)! - said[0]).toBeGreaterThan(0.15);
  const { out } = await webgrpo(folder, 'eval', 'runs/sort3', '--json');
  const evaluated = JSON.parse(out) as { model: string; passAt1: number };
  expect(evaluated.model).toBe('runs/sort3');
  expect(evaluated.passAt1 - said[0]).toBeGreaterThan(0.1);
  const asked = await webgrpo(
    folder,
    'generate',
    '--model',
    'runs/sort3',
    '--prompt',
    'Sort: 5 0 2',
    '--temperature',
    '0',
  );
  expect(asked.out).toMatch(/"name":"min"[^]*tool: 0/);
});
