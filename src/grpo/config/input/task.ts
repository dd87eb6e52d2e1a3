/** `task` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface TaskInput {
  /** Which task: its problems, tools and reward. Allowed: text. Default: "gsm8k". */
  name?: string | undefined;
  /** In place of name: a module whose default export is the task, as a file (.js, .ts; relative to the working folder), a package's name, or https://... Allowed: text. */
  module?: string | undefined;
  /** Run the module in a sandbox, without network, files and environment; absent = true for an address, false for a file or package. Allowed: true | false. */
  isolated?: boolean | undefined;
  /** One call of a module in the sandbox may take so long, before it is ended. Allowed: > 0 (s). Default: 10. */
  timeoutS?: number | undefined;
  /** JSONL file of training problems; absent = the task generates its own. Allowed: text. */
  path?: string | undefined;
  /** JSONL file of held-out problems, or several: a list, or files by the name that their metrics get; absent = the task generates its own. Allowed: text, list of texts, or texts by name. */
  valPath?: string | string[] | Record<string, string> | undefined;
  /** The task's own settings, checked by the task. Allowed: named values. Default: {}. */
  options?: Record<string, string | number | boolean> | undefined;
  /** What the model may call beside the tools of the task; absent = nothing. Allowed: some of calculator, javascript. */
  tools?: 'calculator' | 'javascript' | ('calculator' | 'javascript')[] | undefined;
  /** MCP servers whose tools the model may call as well, by name: { command, args, env, cwd } or { url, headers }, and more as docs/mcp.md says; or a JSON file with `mcpServers`. Commands run with your rights. Allowed: text, or settings by name. */
  mcpServers?:
    | string
    | Record<string, Record<string, string | number | boolean | string[] | Record<string, string>>>
    | undefined;
}
