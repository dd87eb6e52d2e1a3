/** Starts the MCP project's own test server, server-everything. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { portOf } from './hubServer.ts';

export const EVERYTHING = 'node_modules/@modelcontextprotocol/server-everything/dist/index.js';

/** Starts the server over HTTP (`streamableHttp` or `sse`). Tries another port if the server ends, because its port was taken meanwhile. */
export async function serveEverything(kind: string): Promise<{ url: string; stop(): Promise<void> }> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const port = portOf(probe);
  probe.close();
  const env = { ...process.env, PORT: `${port}` };
  const child = spawn(process.execPath, [EVERYTHING, kind], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const exited = once(child, 'exit');
  const isReady = new Promise<boolean>((ready) => {
    let said = '';
    const hear = (text: unknown) => {
      said += String(text);
      if (said.includes(`port ${port}`)) ready(true);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    void exited.then(() => ready(false));
  });
  if (!(await isReady)) return serveEverything(kind);
  return {
    url: `http://127.0.0.1:${port}/${kind === 'sse' ? 'sse' : 'mcp'}`,
    async stop() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}
