/** Runs the agents of test/agentClients.py, by the Python that CLIENTS_PYTHON names. CONTRIBUTING.md says how to make it. */

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';

/** A question, and the address that the agent's client gets. */
export interface AgentTask {
  base: string;
  question: string;
}

/** Undefined if Python has no such packages. */
export const clientsPython = [process.env['CLIENTS_PYTHON'], 'node_modules/.cache/webgrpo/clients/bin/python'].find(
  (path) => path !== undefined && existsSync(path),
);

/** A process with one agent. It ends when the variable that `using` declares leaves its scope. */
export class PythonAgent implements Disposable {
  readonly #model: string;
  readonly #python;
  readonly #lines: AsyncIterator<string>;
  #said = '';

  constructor(client: string, model: string) {
    this.#model = model;
    this.#python = spawn(clientsPython!, ['test/agentClients.py', client], { stdio: 'pipe' });
    this.#python.stderr.on('data', (data: Buffer) => (this.#said += data.toString()));
    this.#lines = createInterface({ input: this.#python.stdout })[Symbol.asyncIterator]();
  }

  /** Returns the answers, or a text if a package is missing. */
  async answers(tasks: readonly AgentTask[]): Promise<string[] | string> {
    this.#python.stdin.write(`${JSON.stringify({ model: this.#model, tasks })}\n`);
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(this.#said.slice(-2000));
    return JSON.parse(value) as string[] | string;
  }

  [Symbol.dispose](): void {
    this.#python.kill();
  }
}
