/** Runs whose exported prompts are compared with the token ids of TRL and transformers: test/fixtures/exportedPrompts.json. */

import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exportRun } from '../src/cli/commands/export.ts';

const MODEL = 'checkpoints/gsm8k-tool';
export const CONFIG = 'configs/gsm8k-tool.yaml';
export const FIXTURE = 'test/fixtures/exportedPrompts.json';

/** Token ids of a run's first prompt, and of the text that follows a tool call whose result is 24; null if no tool is called. */
export interface PeerIds {
  prompt: number[];
  turn: number[] | null;
}

/** Token ids that another library computed, and a hash of the chat template that it used. */
export interface StoredIds extends PeerIds {
  template: string;
}

const folder = mkdtempSync(join(tmpdir(), 'webgrpo-prompts-'));
const file = (name: string, text: string) => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
const problem = { question: 'How many pens are 12 times 4 pens?', answer: '<<12*4=48>>\n#### 48' };
const data = file('problems.jsonl', `${JSON.stringify(problem)}\n`.repeat(16));
/** A chat template like Qwen's: a line break after each turn, and tools only if there are any. */
const template = file(
  'template.jinja',
  "{%- if tools is not none and tools %}{{- '<|im_start|>system\\n# Tools' }}{%- for tool in tools %}" +
    "{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}" +
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}" +
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' + (opening or '') }}{%- endif %}",
);
const SCHEMAS = 'rollout.multiTurn.toolSchemasInPrompt=true';
const NO_SCHEMAS = 'rollout.multiTurn.toolSchemasInPrompt=false';

export const RUNS: Readonly<Record<string, readonly string[]>> = {
  default: [],
  'schemas in the prompt': [SCHEMAS],
  'schemas, a single turn': [SCHEMAS, 'rollout.agent.defaultAgentLoop=single_turn'],
  'schemas, no turns with tools': [SCHEMAS, 'rollout.multiTurn.enable=false'],
  'schemas, a tool that is not exported': [SCHEMAS, 'task.tools=[javascript]'],
  'a system prompt': [`task.path=${data}`, 'task.options.systemPrompt=Be brief.', 'task.options.instruction=Think.'],
  'another format of calls': ['rollout.multiTurn.format=qwen3_coder'],
  'another template': [
    NO_SCHEMAS,
    `model.customChatTemplate=${template}`,
    'data.chatTemplateKwargs={opening: "<think>"}',
  ],
  'another template with schemas': [`model.customChatTemplate=${template}`],
};

/** Exports a run for TRL or another library. Returns the folder, and the sentences about settings that the export cannot carry. */
export async function exported(peer: string, name: string, overrides: readonly string[]) {
  const out = join(folder, `${peer}-${name}`.replaceAll(/\W+/g, '-'));
  let notCarried: string[] = [];
  const io = {
    json: true,
    text: () => {},
    result: (value: unknown) => ({ notCarried } = value as { notCarried: string[] }),
  };
  const flags = { out, config: CONFIG };
  const short = ['trainer.totalTrainingSteps=1', 'data.valMaxSamples=8', ...overrides];
  await exportRun.run({ positionals: [peer, MODEL], overrides: short, flags }, io);
  const text = readFileSync(join(out, 'model/tokenizer_config.json'), 'utf8');
  return { out, notCarried, template: createHash('sha256').update(text).digest('hex') };
}
