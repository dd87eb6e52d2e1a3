/** Tests downloads from a local server that behaves like a Hugging Face hub, and misbehaves on request. */

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { diskStore } from '../../src/cli/diskStore.ts';
import { type GgufType, ggufModel } from '../../src/extensions/gguf/index.ts';
import { collectWeights, saveCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import { parseModelConfig } from '../../src/model/config.ts';
import type { DownloadProgress } from '../../src/model/checkpoint/download.ts';
import { isGguf, isGgufModel, isRemote } from '../../src/model/checkpoint/address.ts';
import { fetchModel, type HubOptions, lookUpModel } from '../../src/model/checkpoint/hub.ts';
import { openCheckpoint } from '../../src/model/checkpoint/open.ts';
import type { CheckpointFiles } from '../../src/model/checkpoint/sourceFiles.ts';
import type { FileStore } from '../../src/model/checkpoint/store.ts';
import { InputError } from '../../src/errors.ts';
import { initWeights } from '../../src/model/params.ts';
import { readCheckpoint } from '../../src/node.ts';
import { writeSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { Sha256 } from '../../src/model/checkpoint/sha256.ts';
import { answerWith, hash, type Hub, SHA, startHub, portOf } from '../hubServer.ts';
import { holdTimers } from '../timers.ts';
import { refusalBy } from '../refusal.ts';

const CONFIG = parseModelConfig({
  architectures: ['LlamaForCausalLM'],
  vocab_size: 300,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
});
const WEIGHTS = initWeights(CONFIG, 1);
const text = (value: string) => new TextEncoder().encode(value);

/** Returns a checkpoint in two shards, with a tokenizer. */
function repository(): Map<string, Uint8Array> {
  const files: Map<string, Uint8Array> = saveCheckpoint({
    config: CONFIG,
    weights: WEIGHTS,
    tokenizerJson: { version: '1.0' },
    tokenizerConfigJson: { eos_token: '</s>' },
  });
  files.set('generation_config.json', text('{"eos_token_id": [5, 6]}'));
  files.set('LICENSE', text('Apache 2.0'));
  files.delete('model.safetensors');
  const all = [...WEIGHTS];
  const map: Record<string, string> = {};
  for (const [i, part] of [all.slice(0, 6), all.slice(6)].entries()) {
    const name = `model-0000${i + 1}-of-00002.safetensors`;
    files.set(name, writeSafetensors(new Map(part)));
    for (const [tensor] of part) map[tensor] = name;
  }
  return files.set('model.safetensors.index.json', text(JSON.stringify({ weight_map: map })));
}

let hub: Hub;
let cache: string;

beforeEach(async () => {
  [hub, cache] = [await startHub(repository()), mkdtempSync(join(tmpdir(), 'webgrpo-hub-'))];
});
afterEach(() => hub.close());

const SHARD = 'model-00001-of-00002.safetensors';
const fetched = (options: HubOptions = {}, model = 'org/tiny') =>
  fetchModel(model, diskStore(cache), {
    ...{ endpoint: hub.endpoint, waitMs: 1, onProgress: hub.onProgress },
    ...options,
  });
const refusal = async (promise: Promise<unknown>) => (await refusalBy(promise)).replaceAll(hub.endpoint, 'HUB');

test('a repository: every file once, through redirects, then from the cache alone', async () => {
  const progress: DownloadProgress[] = [];
  const checkpoint = await openCheckpoint(await fetched({ onProgress: (p) => progress.push(p) }));
  expect(await collectWeights(checkpoint.weights)).toEqual(WEIGHTS);
  expect(checkpoint.tokenizerConfigJson).toEqual({ eos_token: '</s>' });
  expect(checkpoint.config.eosTokenIds).toEqual([5, 6]);
  expect(checkpoint.sourceFiles.get('LICENSE')).toEqual(text('Apache 2.0'));
  expect(hub.log.filter((line) => line.startsWith('/cdn/')).sort()).toEqual(
    [...hub.files.keys()].map((file) => `/cdn/${file}`).sort(),
  );
  const { length } = hub.files.get(SHARD)!;
  expect(progress.findLast(({ file }) => file === SHARD)).toEqual({ file: SHARD, received: length, total: length });

  hub.log.length = 0;
  await openCheckpoint(await fetched());
  expect(hub.log).toEqual(['/api/models/org/tiny/revision/main?blobs=true']);
  hub.close();
  await openCheckpoint(await fetched());
});

test('a cache that cannot be written is an error without a retry, and no error if it has every file', async () => {
  await fetched();
  const readOnly: FileStore = { ...diskStore(cache), writer: () => Promise.reject(new InputError('read-only')) };
  await openCheckpoint(await fetchModel('org/tiny', readOnly, { endpoint: hub.endpoint }));
  const folder = readdirSync(cache, { recursive: true, encoding: 'utf8' }).find((path) => path.endsWith(SHA))!;
  rmSync(join(cache, folder), { recursive: true });
  writeFileSync(join(cache, folder), '');
  hub.log.length = 0;
  expect((await refusal(fetched())).replace(cache, 'CACHE')).toMatch(
    /^The cache folder CACHE cannot be written: .+\. Correct that, or set WEBGRPO_CACHE to another folder\.$/,
  );
  expect(hub.log.filter((line) => line.startsWith('/cdn/'))).toHaveLength(1);
});

test('a branch with another commit than at the last download is said', async () => {
  const said: string[][] = [];
  const onOtherCommit = (...commits: string[]) => void said.push(commits);
  await fetched({ onOtherCommit });
  await fetched({ onOtherCommit });
  expect(said).toEqual([]);
  const note = readdirSync(cache, { recursive: true, encoding: 'utf8' }).find((file) =>
    file.endsWith('revision-main.json'),
  )!;
  const path = join(cache, note);
  writeFileSync(path, readFileSync(path, 'utf8').replace(SHA, 'f'.repeat(40)));
  await fetched({ onOtherCommit });
  await fetched({ onOtherCommit });
  expect(said).toEqual([['f'.repeat(40), SHA]]);
});

test('a broken download continues where it stopped', async () => {
  hub.faults.set(SHARD, [hub.cutAfter(SHARD, 30_000), answerWith(503)]);
  const { weights } = await openCheckpoint(await fetched());
  expect(await collectWeights(weights)).toEqual(WEIGHTS);
  const asked = hub.log.filter((line) => line.startsWith(`/cdn/${SHARD}`));
  expect(asked).toHaveLength(3);
  expect(asked[2]).toBe(`/cdn/${SHARD} bytes=30000-`);
});

test('an interrupted download continues in the next process; a file that changed meanwhile restarts', async () => {
  hub.faults.set(SHARD, [hub.cutAfter(SHARD, 20_000), answerWith(500), answerWith(500)]);
  expect(await refusal(fetched({ attempts: 2 }))).toBe(
    `HUB/org/tiny/resolve/${SHA}/${SHARD} could not be downloaded: the server answered 500 Internal Server Error ` +
      '(2 attempts). Check the network, then start again: the download resumes.',
  );
  hub.faults.clear();
  // Different bytes of the same length under the same name. Their ETag differs, so the partial download must not be resumed.
  const other = hub.files.get(SHARD)!.slice();
  other[other.length - 2] ^= 1;
  hub.files.set(SHARD, other);
  hub.log.length = 0;
  const model = await openCheckpoint(await fetched());
  expect(hub.log.filter((line) => line.startsWith(`/cdn/${SHARD}`))).toEqual([
    `/cdn/${SHARD} bytes=20000-`,
    `/cdn/${SHARD}`,
  ]);
  expect(await collectWeights(model.weights)).not.toEqual(WEIGHTS);
});

test('wrong bytes are downloaded once more, then refused', async () => {
  const good = hub.files.get(SHARD)!;
  const bad = good.slice();
  bad[good.length - 1] ^= 1;
  const sendBad = (response: ServerResponse) => void response.writeHead(200, { etag: '"x"' }).end(bad);
  hub.faults.set(SHARD, [sendBad]);
  expect(await collectWeights((await openCheckpoint(await fetched())).weights)).toEqual(WEIGHTS);
  cache = mkdtempSync(join(tmpdir(), 'webgrpo-hub-'));
  hub.faults.set(SHARD, [sendBad, sendBad]);
  expect(await refusal(fetched())).toBe(
    `HUB/org/tiny/resolve/${SHA}/${SHARD} has the SHA-256 ${hash('sha256', bad)}, but ${hash('sha256', good)} was ` +
      'expected, twice. The file on the server or the connection is damaged.',
  );
});

test('a server that is too slow, or sends more weights than the config has, is abandoned', async () => {
  const drip = (bytes: number) => (response: ServerResponse) => {
    response.writeHead(200, { etag: '"x"' });
    const timer = setInterval(() => response.write(new Uint8Array(bytes)), 5);
    response.on('close', () => clearInterval(timer));
  };
  hub.faults.set(SHARD, [drip(1), drip(1)]);
  expect(await refusal(fetched({ silenceMs: 200, attempts: 2 }))).toMatch(
    /could not be downloaded: the server sent next to nothing for 0.2 s \(2 attempts\)/,
  );
  hub.faults.set(SHARD, [drip(2 ** 20)]);
  expect(await refusal(fetched({}, `${hub.endpoint}/files`))).toMatch(/sends more than the \d+ bytes allowed/);
});

test('an unsupported model is refused before its weights are requested', async () => {
  hub.files.set('config.json', text('{"architectures":["MambaForCausalLM"]}'));
  expect(await refusal(fetched())).toMatch(/^config.json: "architectures" is /);
  expect(hub.log.filter((line) => line.includes('safetensors'))).toEqual([]);
});

test.each([
  'NUL.safetensors',
  'con.safetensors',
  'config.json',
  '../x.safetensors',
  'a\\b.safetensors',
  'C:x.safetensors',
])('an index that names %s is refused', async (shard) => {
  hub.files.set('model.safetensors.index.json', text(JSON.stringify({ weight_map: { x: shard } })));
  expect(await refusal(fetched())).toBe(
    'model.safetensors.index.json has no "weight_map" from tensor names to .safetensors files beside it.',
  );
});

test('an address with a query is refused without its text, which may be a secret', async () => {
  expect(await refusal(fetched({}, 'https://a.b/c?token=secret'))).toBe(
    'The model address at a.b has a query. Give the URL of a folder of files.',
  );
});

test('a silent connection is closed, and retried', async () => {
  const passSilence = holdTimers(200);
  hub.faults.set(SHARD, [() => passSilence()]);
  await fetched({ silenceMs: 200 });
  vi.unstubAllGlobals();
  expect(hub.log.filter((line) => line.startsWith(`/cdn/${SHARD}`))).toHaveLength(2);
});

test('a folder at a URL has no list, so each file is requested; later requests only ask for changes', async () => {
  const url = `${hub.endpoint}/files/`;
  const checkpoint = await openCheckpoint(await fetched({}, url));
  expect(await collectWeights(checkpoint.weights)).toEqual(WEIGHTS);
  expect(checkpoint.config.eosTokenIds).toEqual([5, 6]);
  hub.log.length = 0;
  await fetched({}, url);
  expect(hub.log).toContain('/files/model-00002-of-00002.safetensors');
  hub.files.clear();
  expect(await refusal(fetched({}, `${hub.endpoint}/other`))).toBe(
    'HUB/other has no config.json at HUB/other. Check its name.',
  );
});

test('refusals of the hub, and an unreachable hub, are errors', async () => {
  expect(await refusal(fetched({}, 'org/nope'))).toBe('org/nope: HUB has no such model or revision. Check its name.');
  hub.close();
  expect(await refusal(fetched())).toBe(
    'org/tiny is not a folder here, and HUB cannot be reached (ECONNREFUSED). Check the path, or the network (HF_ENDPOINT sets another hub).',
  );
});

describe('the token', () => {
  /** Starts a server at another address. Returns the authorization headers that it receives. */
  async function sentTo(options: HubOptions, model: (origin: string) => string) {
    const seen: (string | undefined)[] = [];
    const server = createServer((request, response) => {
      seen.push(request.headers.authorization);
      response.writeHead(404).end();
    }).listen(0, '0.0.0.0');
    await new Promise((resolve) => server.once('listening', resolve));
    const origin = `http://127.0.0.1:${portOf(server)}`;
    const endpoint = options.endpoint?.replace('ORIGIN', origin);
    const message = await refusal(fetchModel(model(origin), diskStore(cache), { waitMs: 1, ...options, endpoint }));
    server.close();
    server.closeAllConnections();
    expect(message).not.toContain('hf_SECRET');
    return seen;
  }
  const token = 'hf_SECRET';

  test('the token is sent to the endpoint, for its repositories and for addresses on it', async () => {
    expect(await sentTo({ token, endpoint: 'ORIGIN' }, () => 'org/tiny')).toEqual([`Bearer ${token}`]);
    const seen = await sentTo({ token: `${token}\n`, endpoint: 'ORIGIN' }, (origin) => `${origin}/org/tiny`);
    expect(new Set(seen)).toEqual(new Set([`Bearer ${token}`]));
  });

  test('the token is not sent to any other host, whoever named it', async () => {
    expect(new Set(await sentTo({ token }, (origin) => `${origin}/steal`))).toEqual(new Set([undefined]));
    const other = await sentTo({ token, endpoint: hub.endpoint }, (origin) => `${origin}/steal`);
    expect(new Set(other)).toEqual(new Set([undefined]));
  });

  test('the token is not sent to other machines over plain http', async () => {
    const seen: (string | null)[] = [];
    vi.stubGlobal('fetch', (_: string, init: RequestInit) => {
      seen.push(new Headers(init.headers).get('authorization'));
      return Promise.resolve(new Response('', { status: 404 }));
    });
    try {
      for (const scheme of ['http', 'https']) {
        await refusal(fetchModel('org/tiny', diskStore(cache), { token, endpoint: `${scheme}://hub.example` }));
      }
    } finally {
      vi.unstubAllGlobals();
    }
    expect(seen).toEqual([null, `Bearer ${token}`]);
  });

  test('the token is in no message', async () => {
    expect(await refusal(fetched({ token: 'hf_SECRET\nx' }))).toBe(
      'HF_TOKEN contains white space or invalid characters. Set it to the token alone.',
    );
  });
});

describe('a hub that lies', () => {
  const LIST = '/api/models/org/tiny/revision/main?blobs=true';

  test.each(['no json', '{"sha":"a","siblings":[null]}', '{"sha":"a","siblings":[{"rfilename":7}]}', 'null', '[]'])(
    'a listing of %s',
    async (listing) => {
      vi.stubGlobal('fetch', () => Promise.resolve(new Response(listing)));
      try {
        expect(await refusal(fetched())).toBe(
          `org/tiny: HUB${LIST} returned no list of files. Give the address of a Hugging Face hub.`,
        );
      } finally {
        vi.unstubAllGlobals();
      }
    },
  );

  test('a body that is longer than promised is not read on', async () => {
    let sent = 0;
    hub.faults.set('config.json', [
      (response) => {
        response.writeHead(200, { etag: '"x"' });
        const more = () => {
          sent += 65_536;
          if (!response.destroyed && sent < 5e7) response.write('x'.repeat(65_536), more);
        };
        more();
      },
    ]);
    const { length } = hub.files.get('config.json')!;
    expect(await refusal(fetched())).toBe(
      `HUB/org/tiny/resolve/${SHA}/config.json sends more than the ${length} bytes allowed. Nothing of it is used.`,
    );
    expect(sent).toBeLessThan(2e7);
  });

  test.each([
    ['http://[::1', {}, 'The model address is "http://[::1", which is not an address. Write it as https://host/path.'],
    ['org/tiny', { endpoint: 'hub' }, 'HF_ENDPOINT is "hub", which is not an address. Write it as https://host/path.'],
    ['https://me:secret@a.b/c', {}, 'The model address at a.b contains a user name or a password. Remove it.'],
  ])('%s is refused in a sentence', async (model, options, message) => {
    expect(await refusal(fetched(options, model))).toBe(message);
  });
});

/** The shipped model as the bytes of a GGUF file. */
const ggufOf = async (type: GgufType): Promise<Uint8Array> =>
  ggufModel({ name: 'tiny', type }, await readCheckpoint('checkpoints/gsm8k-tool')).bytes;
const [F16, Q8] = [await ggufOf('F16'), await ggufOf('Q8_0')];

describe('GGUF files', () => {
  const expectFile = async (files: CheckpointFiles, bytes: Uint8Array) => {
    expect((await openCheckpoint(files)).tokenizerJson).toBeDefined();
    expect(hash('sha256', await files.read(files.gguf!, 0, 2 ** 30))).toBe(hash('sha256', bytes));
  };
  const [TINY_F16, TINY_Q8] = ['tiny-BF16.gguf', 'tiny-q8_0.gguf'];
  const bytesOf = (file: string) => hub.log.filter((line) => line === `/cdn/${file}` || line === `/files/${file}`);

  beforeEach(() => {
    for (const file of hub.files.keys()) if (!file.startsWith('LICENSE')) hub.files.delete(file);
    hub.files.set(TINY_F16, F16).set(TINY_Q8, Q8);
  });

  test.each([
    ['org/tiny@main:q8_0', Q8],
    [`org/tiny/${TINY_F16}`, F16],
    [`HUB/files/${TINY_Q8}?download=true`, Q8],
  ])('%s is downloaded once', async (name, bytes) => {
    const model = name.replace('HUB', hub.endpoint);
    expect(isRemote(model)).toBe(true);
    await expectFile(await fetched({}, model), bytes);
    const [first, ...more] = bytesOf(bytes === Q8 ? TINY_Q8 : TINY_F16);
    expect([typeof first, more]).toEqual(['string', []]);
    hub.close();
    await expectFile(await fetched({}, model), bytes);
  });

  test.each([
    ['org/tiny:Q4_1', `"Q4_1" names no file of org/tiny, which has the GGUF files ${TINY_F16}, ${TINY_Q8}. Write org/tiny/FILE.gguf.`],
    ['org/tiny:F16', `"F16" names no file of org/tiny, which has the GGUF files ${TINY_F16}, ${TINY_Q8}. Write org/tiny/FILE.gguf.`],
    ['org/tiny/a.gguf', `"a.gguf" names no file of org/tiny, which has the GGUF files ${TINY_F16}, ${TINY_Q8}. Write org/tiny/FILE.gguf.`],
    ['org/tiny', `org/tiny has no config.json, but GGUF files. Choose one of them: org/tiny/${TINY_F16}.`],
    ['HUB/files/a.gguf', 'HUB has no a.gguf at HUB/files/a.gguf. Check the address.'],
    [`HUB/files/${TINY_Q8}?x=1`, 'The model address at HUB has a query. Give the URL of a folder of files.'],
  ])('%s is refused in a sentence', async (name, message) => {
    const { host } = new URL(hub.endpoint);
    const said = await refusal(fetched({}, name.replace('HUB', hub.endpoint)));
    expect(said.replaceAll(host, 'HUB')).toBe(message);
    if (name.startsWith('org/'))
      expect((await refusal(lookUpModel(name, { endpoint: hub.endpoint }))).replaceAll(host, 'HUB')).toBe(message);
  }); // oxfmt-ignore

  test('two files of one type, and names that lead out of the folder', async () => {
    hub.files.set('other.Q8_0.gguf', Q8).set('../../evil-Q4_0.gguf', Q8).set('..\\evil-Q4_0.gguf', Q8);
    expect(await refusal(fetched({}, 'org/tiny:Q8_0'))).toContain('"Q8_0" names several files of org/tiny, which has');
    expect(await refusal(fetched({}, 'org/tiny:Q4_0'))).toContain('"Q4_0" names no file of org/tiny');
  });

  test('a model that is not supported is refused before its weights are downloaded', async () => {
    const other = Buffer.from(F16);
    other.write('gemma', other.indexOf('llama', other.indexOf('general.architecture')));
    hub.files.set(TINY_F16, other);
    expect(await refusal(fetched({}, `org/tiny/${TINY_F16}`))).toMatch(
      /^tiny-BF16\.gguf has the general\.architecture "gemma"; allowed are llama, qwen2, qwen3\./,
    );
    expect(bytesOf(TINY_F16)).toEqual([]);
  });

  test('a server without ranges: the file is downloaded; it cannot be looked up', async () => {
    const whole = (response: ServerResponse) => void response.writeHead(200, { etag: '"x"' }).end(Q8);
    hub.faults.set(TINY_Q8, [whole]);
    const model = `${hub.endpoint}/files/${TINY_Q8}`;
    await expectFile(await fetched({}, model), Q8);
    hub.faults.set(TINY_Q8, [whole]);
    expect(await refusal(lookUpModel(model))).toBe(
      `HUB/files/${TINY_Q8} can only be read as a whole: its server does not send parts of a file. Download the file, and choose it.`,
    );
  });

  test('a part that is longer than requested, or does not come, ends in a sentence', async () => {
    const part = (response: ServerResponse) =>
      void response.writeHead(206, { 'content-range': 'bytes 0-0/9999999' }).end('G');
    const long = (response: ServerResponse) => void response.writeHead(206).end(Buffer.alloc(2 ** 21));
    const none = (response: ServerResponse) => void response.destroy();
    const model = `${hub.endpoint}/files/${TINY_Q8}`;
    hub.faults.set(TINY_Q8, [part, long]);
    expect(await refusal(lookUpModel(model))).toBe(
      `HUB/files/${TINY_Q8} sends more than the 1048576 bytes requested. Try again later.`,
    );
    hub.faults.set(TINY_Q8, [part, none]);
    expect(await refusal(fetched({}, model))).toBe(
      `HUB/files/${TINY_Q8} did not answer to a request for a part of the file. Try again later.`,
    );
  });

  test('looking up reads the header alone', async () => {
    const { config, bytes } = await lookUpModel('org/tiny:Q8_0', { endpoint: hub.endpoint });
    expect([config.hiddenSize, bytes]).toEqual([96, Q8.length]);
    expect(bytesOf(TINY_Q8)).toEqual([]);
  });
});

test('addresses are distinguished from paths', () => {
  expect(isRemote('org/name@../../../x')).toBe(false);
  expect(['org/name', 'HuggingFaceTB/SmolLM2-135M-Instruct@v1.0', 'https://a.b/c'].every(isRemote)).toBe(true);
  expect(['org/name:Q4_1', 'org/name@v1:Q4_K_M', 'org/name/x.gguf'].every(isRemote)).toBe(true);
  expect(['name', './a/b', '/a/b', 'a/b/c', '../a'].some(isRemote)).toBe(false);
  expect(['org/name:Q4_1', 'org/name/x.gguf', 'x.gguf', 'https://a.b/x.gguf?download=true'].every(isGgufModel)).toBe(
    true,
  );
  // Paths of folders are not taken for GGUF files, and local paths are not taken for models of a hub.
  expect(['runs/a:1', 'org/name'].some(isGguf)).toBe(false);
  expect(['C:/a', 'x.gguf', './a/x.gguf', '/a/b/x.gguf', 'a/b/c/x.gguf', '../a/x.gguf', 'a:b'].some(isRemote)).toBe(
    false,
  );
});

test('SHA-256 in parts of any length', () => {
  const data = readFileSync('package-lock.json').subarray(0, 5000);
  for (const cut of [0, 1, 55, 56, 63, 64, 65, 119, 1000, 5000]) {
    const parts = new Sha256().update(data.subarray(0, cut)).update(data.subarray(cut));
    expect(parts.hex()).toBe(hash('sha256', data));
    expect(new Sha256().update(data.subarray(0, cut)).hex()).toBe(hash('sha256', data.subarray(0, cut)));
  }
});
