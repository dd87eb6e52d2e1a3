/** `task` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface TaskInput {
  /** Which task: its problems, tools and reward. Allowed: text. Default: "gsm8k". */
  name?: string | undefined;
  /** JSONL file of training problems; absent = the task generates its own. Allowed: text. */
  path?: string | undefined;
  /** JSONL file of held-out problems, or several: a list, or files by the name that their metrics get; absent = the task generates its own. Allowed: text, list of texts, or texts by name. */
  valPath?: string | string[] | Record<string, string> | undefined;
  /** The task's own settings, checked by the task. Allowed: named values. Default: {}. */
  options?: Record<string, string | number | boolean> | undefined;
  /** What the model may call beside the tools of the task; absent = nothing. Allowed: some of calculator, javascript. */
  tools?: 'calculator' | 'javascript' | ('calculator' | 'javascript')[] | undefined;
}
