/**
 * `search`, `open` and `answer`: tools for question answering over documents. Search is by BM25 in this process, or by any HTTP endpoint
 * that has the retrieval protocol of Search-R1 and verl.
 */

import { limiter } from '../../tasks/limiter.ts';
import { defineTool, type Tool } from '../../tasks/tool.ts';

/** A document to search. */
export interface Document {
  /** Id of the document, the argument of `open`. */
  id: string;
  /** Title shown in results. */
  title: string;
  /** Text that `open` returns. */
  text: string;
}

interface Found {
  id: string;
  title: string;
}

/** Returns the best `topK` documents for a query, best first. */
export type Search = (query: string, topK: number, signal: AbortSignal) => Found[] | Promise<Found[]>;

/** Creates a BM25 search over titles and texts, with the package minisearch, which is loaded here. */
export async function localSearch(documents: readonly Document[]): Promise<Search> {
  const { default: MiniSearch } = await import('minisearch');
  const index = new MiniSearch<Document>({ fields: ['title', 'text'], storeFields: ['title'] });
  index.addAll(documents);
  return (query, topK) =>
    index
      .search(query, { boost: { title: 2 } })
      .slice(0, topK)
      .map(({ id, title }) => ({ id: String(id), title: String(title) }));
}

interface HttpSearchOptions {
  url: string;
  /** Maximum number of requests in flight; further requests wait. Default: 8. */
  concurrency?: number;
  /** Maximum number of cached results, by query. The oldest is evicted first. Default: 1000. */
  cacheSize?: number;
  fetch?: typeof fetch;
}

/**
 * Creates a search by an HTTP service: POST { queries, topk, return_scores } -> { result: [[{ document: { id, contents }, score }]] }.
 * `contents` starts with the title.
 */
export function httpSearch({ url, concurrency = 8, cacheSize = 1000, fetch: get = fetch }: HttpSearchOptions): Search {
  const limit = limiter(concurrency);
  const cache = new Map<string, Found[]>();
  return async (query, topK, signal) => {
    const key = `${topK} ${query}`;
    const known = cache.get(key);
    if (known) return known;
    const found = await limit(() => request(get, url, query, topK, signal));
    cache.set(key, found);
    if (cache.size > cacheSize) cache.delete(cache.keys().next().value!);
    return found;
  };
}

async function request(get: typeof fetch, url: string, query: string, topk: number, signal: AbortSignal) {
  const body = JSON.stringify({ queries: [query], topk, return_scores: true });
  const response = await get(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body, signal });
  if (!response.ok) throw new Error(`the search service answered ${response.status}`);
  const { result } = (await response.json()) as { result: { document: { id: string; contents: string } }[][] };
  return result[0].map(({ document: { id, contents } }) => ({ id: String(id), title: contents.split('\n')[0] }));
}

interface SearchToolOptions {
  topK?: number;
  /** Returns the duration of a query in milliseconds, to simulate a slow service. Default: 0. */
  latencyMs?: (query: string, sampleId: string) => number;
}

/** Creates the tool `search`, which returns the best documents as "id: title", one per line. */
export function searchTool(search: Search, { topK = 3, latencyMs = () => 0 }: SearchToolOptions = {}): Tool {
  return defineTool({
    name: 'search',
    description: 'Finds documents. Gives the number and title of the best ones.',
    parameters: { type: 'object', properties: { query: { type: 'string', maxLength: 200 } }, required: ['query'] },
    async execute({ query }, { sampleId, signal }) {
      await sleep(latencyMs(query, sampleId), signal);
      const found = await search(query, topK, signal);
      return found.length === 0 ? 'nothing found' : found.map(({ id, title }) => `${id}: ${title}`).join('\n');
    },
  });
}

/** Creates the tool `open(id)`, which returns the text of a document, or an error text if the id is unknown. */
export function openTool(documents: readonly Document[]): Tool {
  const byId = new Map(documents.map((document) => [document.id, document]));
  return defineTool({
    name: 'open',
    description: 'Reads the document of a number.',
    parameters: { type: 'object', properties: { id: { type: 'string', maxLength: 40 } }, required: ['id'] },
    execute: ({ id }) => byId.get(id)?.text ?? `Error: there is no document ${id}`,
  });
}

/** Tool for the final answer. The reward `toolRewards.answer` is 1 if the last answer given equals the problem's answer. */
export const answerTool: Tool = defineTool({
  name: 'answer',
  description: 'Gives the final answer.',
  parameters: { type: 'object', properties: { text: { type: 'string', maxLength: 200 } }, required: ['text'] },
  create: ({ problem }) => ({ right: problem.answer, given: '' }),
  execute: ({ text }, { state }) => {
    state.given = text;
    return 'noted';
  },
  calcReward: ({ right, given }) => (normalize(given) === normalize(right) ? 1 : 0),
});

const normalize = (text: string) =>
  text
    .trim()
    .toLowerCase()
    .replace(/[.\s]+$/, '');

/** Resolves or rejects like a promise, but rejects as soon as the signal aborts. */
function sleep(ms: number, signal: AbortSignal): Promise<void> | void {
  if (ms <= 0) return;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(new Error('the search was stopped'));
    });
  });
}
