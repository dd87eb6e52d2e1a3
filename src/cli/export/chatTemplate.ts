/**
 * Writes the chat template of an export. verl and TRL pass the schemas of all their tools to the template; our run passes those that
 * `rollout.multiTurn.toolSchemasInPrompt` selects. If the two differ, our tool schemas are written into the exported template.
 */

import type { TrainConfig } from '../../grpo/config/types.ts';
import type { ModelConfig } from '../../model/config.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { modelTokenizer } from '../../model/tokenizer/modelTokenizer.ts';
import { ChatTemplates } from '../../model/tokenizer/template.ts';
import { callsTools, isSingleTurn, openAiSchema, writesSchemas } from '../../rollout/agent/prompt.ts';
import type { Problem } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import { calculator } from '../../tasks/tools/calculator.ts';

type Json = Record<string, unknown>;

interface TokenizerFiles {
  config: Pick<ModelConfig, 'eosTokenIds'>;
  tokenizerJson: unknown;
  tokenizerConfigJson: Json;
}

/** Tools that an exported run can call, because they are also written in Python. */
export const EXPORTED_TOOLS: readonly Tool[] = [calculator];

/** Returns one sentence per tool and agent loop of the run that neither verl nor TRL can run. */
export function toolsNotCarried(
  { rollout }: TrainConfig,
  tools: readonly Tool[],
  problems: readonly Problem[],
): string[] {
  const missing = tools.filter((tool) => !EXPORTED_TOOLS.includes(tool)).map(({ name }) => name);
  const loop = rollout.agent.defaultAgentLoop;
  const own = problems.filter(({ agentName }) => agentName !== undefined && agentName !== loop);
  const names = [...new Set(own.map(({ agentName }) => agentName))].join(', ');
  const sentences: [boolean, string][] = [
    [
      own.length > 0,
      `agent_name: ${own.length} of ${problems.length} problems name another loop (${names}); all run by rollout.agent.defaultAgentLoop.`,
    ],
    [
      missing.length > 0,
      `task.tools: the exported run does not call ${missing.join(', ')}; the shipped calculator alone is written in Python.`,
    ],
    [
      loop !== 'tool_agent' && !isSingleTurn(loop),
      `rollout.agent.defaultAgentLoop ${loop}: a custom loop is not written in Python; the exported run calls tools in turns.`,
    ],
  ];
  return sentences.flatMap(([applies, sentence]) => (applies ? [sentence] : []));
}

/**
 * Returns the content of a tokenizer_config.json with which verl or TRL encodes prompts to the same tokens as our run. Throws InputError if
 * the tokenizer has no chat template.
 * @param tools all tools of the run
 */
export function exportedTokenizerConfig(
  files: TokenizerFiles,
  config: TrainConfig,
  { tools, peer }: { tools: readonly Tool[]; peer: 'verl' | 'trl' },
): Json {
  const { chatTemplateKwargs } = config.data;
  const { tokenizerConfigJson } = files;
  const tokenizer = modelTokenizer(files, chatTemplateKwargs);
  const { multiTurn } = config.rollout;
  const shown = JSON.stringify(writesSchemas(config.rollout, tokenizer) ? tools.map(openAiSchema) : []);
  const given = JSON.stringify(callsTools(config.rollout) ? EXPORTED_TOOLS.map(openAiSchema) : []);
  const forTrl = peer === 'trl' && callsTools(config.rollout);
  const template = [
    shown === given ? '' : `{%- set tools = ${shown === '[]' ? 'none' : shown} %}{{- '' }}`,
    forTrl && !writesCalls(tokenizer) ? CALLS_AS_CONTENT : '',
    new ChatTemplates(tokenizerConfigJson['chat_template']).textOf(shown !== '[]') ?? '',
  ].join('');
  const calls = forTrl && CALL_FIELDS[multiTurn.format];
  const response = calls && { response_template: responseTemplate(tokenizer, calls) };
  return { ...response, ...tokenizerConfigJson, chat_template: template };
}

const QUESTION = { role: 'user', content: 'question' };

/** Returns the generation prompt: the header of an assistant turn that the template appends to the messages. */
function generationPrompt(tokenizer: ChatTokenizer): string {
  const closed = tokenizer.applyChatTemplate([QUESTION], { addGenerationPrompt: false });
  return tokenizer.applyChatTemplate([QUESTION]).slice(closed.length);
}

/** Returns true if the template renders an assistant's `tool_calls` and messages of role "tool", as TRL requires for tools. */
function writesCalls(tokenizer: ChatTokenizer): boolean {
  const [name, key, value, content] = ['name', 'key', 'value', 'content'].map((part) => `webgrpo-${part}`);
  const call = { type: 'function', function: { name, arguments: { [key]: value } } };
  try {
    const text = tokenizer.applyChatTemplate([
      QUESTION,
      { role: 'assistant', content: '', tool_calls: [call] },
      { role: 'tool', name, content },
    ]);
    return [name, key, value, content].every((part) => text.includes(part));
  } catch {
    return false;
  }
}

/**
 * Start of a template that moves tool calls into the text of their message, for templates that do not render calls. TRL requires that calls
 * are rendered; the tokens of a sampled call stay unchanged.
 */
const CALLS_AS_CONTENT =
  '{%- set all = namespace(messages=[]) %}{%- for message in messages %}' +
  "{%- if message.tool_calls %}{%- set said = namespace(text=message.content or '') %}" +
  '{%- for call in message.tool_calls %}{%- set said.text = said.text + ' +
  "'<tool_call>' + (call.function | tojson) + '</tool_call>' %}{%- endfor %}" +
  "{%- set all.messages = all.messages + [{'role': message.role, 'content': said.text}] %}" +
  '{%- else %}{%- set all.messages = all.messages + [message] %}{%- endif %}{%- endfor %}' +
  "{%- set messages = all.messages %}{{- '' }}";

/**
 * For each tool call format, the part of a tokenizer's response_template by which transformers (5.13 and later) parses calls. TRL uses the
 * response_template.
 */
export const CALL_FIELDS: Readonly<Record<string, Json>> = {
  hermes: {
    open: '<tool_call>',
    close: '</tool_call>',
    content: 'json',
    transform: { type: 'function', function: '{content}' },
  },
  qwen3_coder: {
    open_pattern: '<tool_call>\\s*<function=(?P<name>[^>\\s]+)>',
    close: '</tool_call>',
    content: 'xml-inline',
    content_args: { tag_pattern: '<parameter=(?P<key>[^<>\\s]+)>\\n?(?P<value>.*?)\\n?</parameter>' },
    transform: { type: 'function', function: { name: '{name}', arguments: '{content}' } },
  },
};

function responseTemplate(tokenizer: ChatTokenizer, calls: Json): Json {
  const close = tokenizer.eosTokenIds.map((id) => tokenizer.decode([id]));
  return {
    defaults: { role: 'assistant' },
    start_anchor: generationPrompt(tokenizer),
    fields: { tool_calls: { ...calls, repeats: true }, content: { close, content: 'text' } },
  };
}

/**
 * Returns a sentence for a template with whitespace between the end token and a tool's message: verl leaves it out after a turn, our run
 * does not.
 */
export function turnNotCarried(files: TokenizerFiles): string[] {
  const tokenizer = modelTokenizer(files);
  const turn = tokenizer.decode(tokenizer.encodeContinuation([{ role: 'tool', content: 'result' }]));
  const left = /^\s*/.exec(turn)![0];
  return left === ''
    ? []
    : [
        `rollout.multiTurn: verl leaves ${JSON.stringify(left)} out, which the chat template writes between a call and its result.`,
      ];
}
