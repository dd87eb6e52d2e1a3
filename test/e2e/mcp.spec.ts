/** Tests MCP tools in a page: an MCP server on another origin, with and without CORS. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, type Page, test } from '@playwright/test';
import { build } from 'vite';
import { serveFolder } from '../../scripts/lib/bundlers.mjs';
import { serveEverything } from '../everythingServer.ts';
import { portOf } from '../hubServer.ts';

const folder = mkdtempSync(join(tmpdir(), 'webgrpo-mcp-page-'));
let page: { address: string; close(): void };

test.beforeAll(async () => {
  await build({
    configFile: false,
    logLevel: 'error',
    build: { outDir: folder, lib: { entry: 'src/extensions/mcp/index.ts', formats: ['es'], fileName: 'mcp' } },
  });
  // This policy is as strict as that of the shipped page: no code may come from strings.
  const policy = `<meta http-equiv="Content-Security-Policy" content="script-src 'self'" />`;
  writeFileSync(join(folder, 'index.html'), `<!doctype html><title>mcp</title>${policy}`);
  page = (await (serveFolder as (folder: string) => unknown)(folder)) as typeof page;
});
test.afterAll(() => {
  page.close();
  rmSync(folder, { recursive: true });
});

/** Calls the server's tool from the page. Returns the tool's answer, or the message of the error. */
const sumIn = (inPage: Page, url: string): Promise<string> =>
  inPage.evaluate(async (url) => {
    const path = '/mcp.js';
    const { mcpTools } = (await import(path)) as typeof import('../../src/extensions/mcp/index.ts');
    try {
      const { tools, close } = await mcpTools(url, { include: ['get-sum'], name: 'all' });
      const context = {
        signal: AbortSignal.timeout(30_000),
        sampleId: '',
        problem: { id: '', messages: [], answer: '' },
        state: null,
      };
      const text = await tools[0].execute({ a: 1, b: 2 }, context);
      await close();
      return String(text);
    } catch (error) {
      return String(error).replace(/^\w*Error: /, '');
    }
  }, url);

test('a server that allows the origin by CORS', async ({ page: inPage }) => {
  const { url, stop } = await serveEverything('streamableHttp');
  try {
    await inPage.goto(page.address);
    expect(await sumIn(inPage, url)).toBe('The sum of 1 and 2 is 3.');
  } finally {
    await stop();
  }
});

test('a server without CORS is named in one error message', async ({ page: inPage }) => {
  const server: Server = createServer((_, response) => response.writeHead(200).end('{}'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  await inPage.goto(page.address);
  const port = portOf(server);
  expect(await sumIn(inPage, `http://127.0.0.1:${port}/mcp`)).toBe(
    'the MCP server "all" cannot be reached (Failed to fetch); from a page it must allow this origin by CORS and expose the ' +
      'header Mcp-Session-Id, see docs/guides/mcp.md.',
  );
  server.close();
});
