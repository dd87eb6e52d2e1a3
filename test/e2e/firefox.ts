/** Controls a stock Firefox by Marionette, because Playwright can control only its own builds. */

import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface Firefox {
  open(address: string): Promise<void>;
  /** Returns the value of an expression in the page, as far as JSON can represent it. */
  evaluate(expression: string): Promise<unknown>;
  close(): void;
}

/** Starts `command` without a window, with a new profile. */
export async function startFirefox(command: string): Promise<Firefox> {
  const profile = mkdtempSync(join(tmpdir(), 'webgrpo-firefox-'));
  writeFileSync(join(profile, 'user.js'), 'user_pref("marionette.port", 0);\n');
  const browser = spawn(command, ['--headless', '--marionette', '--no-remote', '--profile', profile], {
    stdio: 'ignore',
  });
  const close = () => {
    browser.once('exit', () => rmSync(profile, { recursive: true, force: true, maxRetries: 5 }));
    browser.kill();
  };
  try {
    const send = await talkTo(await portIn(profile));
    await send('WebDriver:NewSession', {});
    return {
      open: async (url) => void (await send('WebDriver:Navigate', { url })),
      evaluate: async (expression) => {
        const answer = await send('WebDriver:ExecuteScript', { script: `return ${expression}`, args: [] });
        return (answer as { value: unknown }).value;
      },
      close,
    };
  } catch (error) {
    close();
    throw error;
  }
}

/** Returns the port on which Firefox listens. Firefox writes the port into its profile. */
async function portIn(profile: string): Promise<number> {
  const file = join(profile, 'MarionetteActivePort');
  for (let waited = 0; waited < 60_000; waited += 200) {
    if (existsSync(file) && readFileSync(file, 'utf8') !== '') return Number(readFileSync(file, 'utf8'));
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error('Firefox opens no Marionette port.');
}

type Answer = [type: 1, id: number, error: { error: string; message: string } | null, result: unknown];

/** Connects to Firefox's Marionette protocol. Messages are `length:JSON` in both directions. Returns a function that sends a command. */
async function talkTo(port: number): Promise<(command: string, params: object) => Promise<unknown>> {
  const socket = connect(port, '127.0.0.1');
  const waiting = new Map<number, (answer: Answer) => void>();
  await new Promise<void>((greeted) =>
    read(socket, (message) => {
      if (Array.isArray(message)) waiting.get((message as Answer)[1])?.(message as Answer);
      else greeted();
    }),
  );
  let sent = 0;
  return async (command, params) => {
    const id = ++sent;
    const answered = new Promise<Answer>((resolve) => waiting.set(id, resolve));
    const text = JSON.stringify([0, id, command, params]);
    socket.write(`${Buffer.byteLength(text)}:${text}`);
    const [, , error, result] = await answered;
    if (error) throw new Error(`${command}: ${error.error}, ${error.message}`);
    return result;
  };
}

function read(socket: Socket, take: (message: unknown) => void): void {
  let rest = Buffer.alloc(0);
  socket.on('data', (data) => {
    rest = Buffer.concat([rest, Buffer.from(data)]);
    for (;;) {
      const colon = rest.indexOf(':');
      const length = Number(rest.subarray(0, colon).toString());
      if (colon < 0 || rest.length < colon + 1 + length) return;
      take(JSON.parse(rest.subarray(colon + 1, colon + 1 + length).toString()));
      rest = rest.subarray(colon + 1 + length);
    }
  });
}
