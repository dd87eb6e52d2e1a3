/**
 * Decides about the fields of a request that are not served: HINTS, and all fields in no list, are accepted but have no effect; REFUSED would
 * have an effect, but cannot be served. READ does the same for nested objects, in all three APIs.
 */

import { isObject } from '../../../tasks/toolSchema.ts';

/** Fields that are accepted but have no effect on sampling, each with the values that need not be reported, such as the default. */
export const HINTS: Readonly<Record<string, readonly unknown[]>> = {
  store: [false],
  service_tier: ['auto', 'default'],
  reasoning_effort: [],
  verbosity: [],
  prompt_cache_key: [],
  prompt_cache_retention: [],
  safety_identifier: [],
  prediction: [],
  truncation: ['disabled'],
  max_tool_calls: [],
};

const AS_FORMAT = 'give response_format';
const AS_TEXT = 'the model reads and writes text alone';
const NO_TEMPLATE = "the prompt is written by the run's chat template";
/** Fields that would change the reply but cannot be served, each with what to give instead or the reason. */
export const REFUSED: Readonly<Record<string, string>> = {
  functions: 'give tools',
  function_call: 'give tool_choice',
  audio: AS_TEXT,
  web_search_options: 'give a tool that searches',
  guided_json: AS_FORMAT,
  guided_regex: AS_FORMAT,
  guided_choice: AS_FORMAT,
  guided_grammar: AS_FORMAT,
  structured_outputs: AS_FORMAT,
  chat_template: NO_TEMPLATE,
  chat_template_kwargs: NO_TEMPLATE,
  add_generation_prompt: NO_TEMPLATE,
  continue_final_message: NO_TEMPLATE,
  best_of: 'give n',
  use_beam_search: 'tokens are sampled',
  ignore_eos: 'give min_tokens',
};

/**
 * Fields of nested objects that are read, or that describe what they are sent with, such as the id and the status of an earlier reply. All
 * other fields of these objects are hints. [] = every item of a list. Objects without a line here are read as a whole, or are free labels
 * (metadata).
 */
const READ = {
  chat: {
    'messages[]': 'role content name tool_calls tool_call_id function_call audio',
    'messages[].content[]': 'type text refusal',
    'messages[].tool_calls[]': 'id type function index',
    'messages[].tool_calls[].function': 'name arguments',
    'tools[]': 'type function',
    'tools[].function': 'name description parameters',
    tool_choice: 'type function',
    'tool_choice.function': 'name',
    response_format: 'type json_schema',
    'response_format.json_schema': 'name description schema strict',
    stream_options: 'include_usage',
  },
  responses: {
    'input[]': 'type role content id status call_id name arguments output summary encrypted_content',
    'input[].content[]': 'type text refusal annotations logprobs',
    'input[].output[]': 'type text',
    'tools[]': 'type name description parameters',
    tool_choice: 'type name',
    text: 'format',
    'text.format': 'type name description schema strict',
    reasoning: '',
    stream_options: '',
  },
  messages: {
    'system[]': 'type text',
    'messages[]': 'role content',
    'messages[].content[]': 'type text id name input tool_use_id content is_error thinking signature data',
    'messages[].content[].content[]': 'type text',
    'tools[]': 'type name description input_schema',
    tool_choice: 'type name disable_parallel_tool_use',
    output_config: 'format',
    'output_config.format': 'type schema',
    output_format: 'type schema',
  },
} satisfies Record<string, Record<string, string>>;

/** Fields of chat completions that another API's answers have no place for. */
const UNANSWERED: Readonly<Record<keyof typeof READ, readonly string[]>> = {
  chat: [],
  responses: ['return_token_ids'],
  messages: ['return_token_ids', 'logprobs', 'top_logprobs'],
};

/** A nested field without effect, and the fields that its object can have. */
export interface IgnoredField {
  /** Path of the field, e.g. `tools[].function.strict`. */
  path: string;
  known: readonly string[];
}

/**
 * Returns the fields of a valid request that are not answered, and the nested ones that are not read. Null, empty lists and `strict: false`
 * count as absent.
 */
export function ignoredFields(api: keyof typeof READ, body: object): IgnoredField[] {
  const table: Readonly<Record<string, string>> = READ[api];
  const found = new Map<string, IgnoredField>();
  const visit = (value: unknown, path: string): void => {
    if (Array.isArray(value)) return value.forEach((item) => visit(item, `${path}[]`));
    if (!isObject(value) || !Object.hasOwn(table, path)) return;
    const known = table[path].split(' ').filter(Boolean);
    for (const [key, one] of Object.entries(value)) {
      const at = `${path}.${key.slice(0, 64)}`;
      if (known.includes(key)) visit(one, at);
      else if (!isAbsent(key, one)) found.set(at, { path: at, known });
    }
  };
  for (const [name, value] of Object.entries(body)) visit(value, name);
  for (const path of UNANSWERED[api]) if ((body as Record<string, unknown>)[path]) found.set(path, { path, known: [] });
  return [...found.values()];
}

const isAbsent = (key: string, value: unknown): boolean =>
  (value ?? null) === null || (Array.isArray(value) && value.length === 0) || (key === 'strict' && value === false);
