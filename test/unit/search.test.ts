import { describe, expect, test } from 'vitest';
import { limiter } from '../../src/tasks/limiter.ts';
import { answerTool, httpSearch, localSearch, openTool, searchTool } from '../../src/extensions/tasks/search.ts';
import type { Tool } from '../../src/tasks/tool.ts';
import { toolContext } from '../samples.ts';

const DOCUMENTS = [
  { id: '1', title: 'Ana', text: 'Ana lives in Lorum.' },
  { id: '2', title: 'Lorum', text: 'Lorum is a city. Its mayor is Bo.' },
  { id: '3', title: 'Bo', text: 'Bo keeps bees.' },
];
const context = toolContext({ problem: { id: 'p', messages: [], answer: 'Bo' } });
const { signal } = context;
const ask = (tool: Tool, args: Record<string, unknown>, state?: unknown) => tool.execute(args, { ...context, state });

test('BM25 ranks the title above a mention, and reports when nothing matches', async () => {
  const search = searchTool(await localSearch(DOCUMENTS), { topK: 2 });
  expect(await ask(search, { query: 'Lorum' })).toBe('2: Lorum\n1: Ana');
  expect(await ask(search, { query: 'zebra' })).toBe('nothing found');
  expect(await ask(openTool(DOCUMENTS), { id: '3' })).toBe('Bo keeps bees.');
  expect(await ask(openTool(DOCUMENTS), { id: '9' })).toBe('Error: there is no document 9');
});

test('answer: only the last answer is judged, once', async () => {
  const state = answerTool.create!(context);
  expect(await answerTool.calcReward!(state)).toBe(0);
  await ask(answerTool, { text: 'Ana' }, state);
  await ask(answerTool, { text: ' bo. ' }, state);
  expect(await answerTool.calcReward!(state)).toBe(1);
});

describe('a search service', () => {
  const service = (contents: (query: string) => string[]) => {
    const log = { asked: [] as string[], running: 0, most: 0 };
    const fetch = async (_: unknown, init?: RequestInit) => {
      const { queries, topk } = JSON.parse(String(init?.body)) as { queries: string[]; topk: number };
      log.asked.push(queries[0]);
      log.most = Math.max(log.most, ++log.running);
      await new Promise((resolve) => setImmediate(resolve));
      log.running--;
      const hits = contents(queries[0]).slice(0, topk);
      return Response.json({ result: [hits.map((text, i) => ({ document: { id: i, contents: text }, score: 1 }))] });
    };
    return { log, fetch: fetch as typeof globalThis.fetch };
  };

  test('the service gets at most `concurrency` requests at a time, and never two for one query', async () => {
    const { log, fetch } = service((query) => [`${query} title\ntext`]);
    const search = httpSearch({ url: 'http://search.test', concurrency: 3, fetch });
    const queries = Array.from({ length: 10 }, (_, i) => `q${i}`);
    const found = await Promise.all(queries.map((query) => search(query, 2, signal)));
    expect(found[7]).toEqual([{ id: '0', title: 'q7 title' }]);
    expect(log.most).toBe(3);
    expect(log.asked).toEqual(queries);
    await search('q3', 2, signal);
    expect(log.asked).toHaveLength(10);
  });

  test('forgets the oldest answer when the cache is full', async () => {
    const { log, fetch } = service(() => []);
    const search = httpSearch({ url: 'http://search.test', cacheSize: 2, fetch });
    for (const query of ['a', 'b', 'c', 'c', 'b', 'a']) await search(query, 1, signal);
    expect(log.asked).toEqual(['a', 'b', 'c', 'a']);
  });

  test('a refusal is an error of the call', async () => {
    const fetch = (() => Promise.resolve(new Response('', { status: 503 }))) as typeof globalThis.fetch;
    const search = httpSearch({ url: 'http://search.test', fetch });
    await expect(search('q', 1, signal)).rejects.toThrow('the search service answered 503');
  });
});

test('after a failure the next request in the queue starts', async () => {
  const limit = limiter(1);
  const boom = () => Promise.reject(new Error('boom'));
  const results = await Promise.allSettled([limit(boom), limit(boom), limit(() => Promise.resolve('through'))]);
  expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'fulfilled']);
  expect(() => limiter(0)).toThrow('A concurrency limit is 0; allowed: 1 or more.');
});

test('a slow search stops with its signal', async () => {
  const search = searchTool(() => [], { latencyMs: () => 60_000 });
  const stop = new AbortController();
  const pending = search.execute({ query: 'q' }, { ...context, signal: stop.signal }) as Promise<string>;
  stop.abort();
  await expect(pending).rejects.toThrow('the search was stopped');
});
