/**
 * Runs the agents of test/agentClients.py, with the Python that the variable CLIENTS_PYTHON names. CONTRIBUTING.md says how to create its
 * environment.
 */

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';

/** A question for an agent, and the base address that its client uses. */
export interface AgentTask {
  base: string;
  question: string;
}

/** Path of the Python with the agents' packages; undefined if it is not installed. */
export const clientsPython = [process.env['CLIENTS_PYTHON'], 'node_modules/.cache/webgrpo/clients/bin/python'].find(
  (path) => path !== undefined && existsSync(path),
);

/** A Python process that runs one agent. It ends when the variable that `using` declares leaves its scope. */
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

  /** Returns the agent's answers, or a text if a package is missing. */
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
