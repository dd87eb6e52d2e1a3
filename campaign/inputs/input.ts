/** Messages between the campaign and the process in which inputs are tried. */

/** An input to test. */
export type Input =
  | { kind: 'train' | 'sft'; yaml: string; overrides: string[] }
  | { kind: 'command'; args: string[] }
  | { kind: 'folder'; files: Record<string, string> }
  | { kind: 'jsonl' | 'tokens' | 'expression'; text: string }
  | { kind: 'calls'; format: string; text: string };

/** Result of an input. `held`: how the input was correctly handled. `wrong`: what went wrong. */
export interface Verdict {
  held?: 'works' | 'refused';
  wrong?: string;
}
