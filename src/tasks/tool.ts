/** A tool the model can call. Lives with the tasks, because a task brings its tools. */

/** JSON schema of the arguments, as chat templates and verl's tool files expect it. */
export interface ToolSchema {
  type: 'object';
  properties: Record<string, { type: string; description?: string; enum?: string[] }>;
  required?: string[];
}

export interface Tool {
  name: string;
  description: string;
  parameters: ToolSchema;
  /** Returns the text the model reads. A throw becomes an error text for the model; it never ends the run. */
  execute(args: Record<string, unknown>, context: ToolContext): string | Promise<string>;
}

export interface ToolContext {
  /** Unique per sample; key of any per-sample state. */
  sampleId: string;
  signal: AbortSignal;
}
