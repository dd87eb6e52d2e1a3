/** Writes reward.py of an exported run: a reward in Python, with the options of the run. */

import { InputError } from '../../errors.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { isGsm8k } from '../../extensions/sft/index.ts';
import { JSONL_REWARD_OPTIONS, jsonlOptions, type PromptOptions } from '../../extensions/tasks/index.ts';
import { NO_SHAPING, type Shaping } from '../../tasks/gsm8k/reward.ts';
import gsm8kReward from './python/reward.py?raw';
import jsonlReward from './python/reward_jsonl.py?raw';
import rewardStub from './python/reward_stub.py?raw';

/** Returns the name of the reward if it exists only in JavaScript; undefined if reward.py can compute it. */
export function ownReward({ task }: TrainConfig): string | undefined {
  if (task.module !== undefined) return task.module;
  const { reward, module } = task.options;
  if (task.name === 'jsonl') return reward === 'module' ? String(module) : undefined;
  return isGsm8k(task) ? undefined : `the task ${task.name}`;
}

/**
 * Returns the text of reward.py: the run's reward, or a stub if the reward exists only in JavaScript. Throws InputError for options of a
 * reward that the Python version does not have.
 */
export function rewardOf(config: TrainConfig): string {
  const own = ownReward(config);
  if (own !== undefined) return rewardStub.replaceAll('TASK', () => own.replace(/["\\\n]/g, '_'));
  return isGsm8k(config.task) ? rewardOfGsm8k(config.task.options) : rewardOfJsonl(config.task.options);
}

function rewardOfGsm8k(options: Partial<PromptOptions & Shaping>): string {
  if (options.parser === 'flexible')
    throw new InputError(
      'task.options.parser is "flexible", for which there is no reward in Python. Export with task.options.parser=strict.',
    );
  const { formatScore }: Shaping = { ...NO_SHAPING, ...options };
  return gsm8kReward.replace('FORMAT_SCORE = 0.0', `FORMAT_SCORE = ${formatScore}`);
}

function rewardOfJsonl(written: TrainConfig['task']['options']): string {
  const { reward, ignoreCase, pattern, flags } = { ...JSONL_REWARD_OPTIONS, ...jsonlOptions(written) };
  return jsonlReward
    .replace('REWARD = "exact"', `REWARD = "${reward}"`)
    .replace('IGNORE_CASE = False', `IGNORE_CASE = ${ignoreCase ? 'True' : 'False'}`)
    .replace(
      'PATTERN = ""',
      () => `PATTERN = ${JSON.stringify(reward === 'regex' ? pythonPattern(pattern, flags) : '')}`,
    );
}

const LINE_END = String.raw`\n\r\u2028\u2029`;
const SPACE = String.raw`\t\n\x0b\x0c\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff`;
/**
 * The characters that \d, \w and \s match in JavaScript. They are written out, because \d, \w and \s in Python match other characters too.
 */
const CLASSES: Readonly<Record<string, string>> = { d: '0-9', w: 'A-Za-z0-9_', s: SPACE };
/** Splits a pattern into parts: an escape, a character class, the start of a group, a quantifier, or a single character. */
const PARTS = /\\[^]|\[(?:\\[^]|[^\]])*\]|\(\?(?:<[=!]|<\w+>|[:=!])?|\{\d+(?:,\d*)?\}|[^]/g;

/**
 * Converts a JavaScript regular expression to one that matches the same in Python's `re`. Throws InputError for a part that `re` cannot
 * express.
 */
export function pythonPattern(pattern: string, flags: string): string {
  const refuse = (what: string): never => {
    throw new InputError(
      `task.options.pattern has ${what}, which Python's re reads differently. Write the pattern without it, or export another reward.`,
    );
  };
  const escaped = (part: string, isInClass: boolean): string => {
    const kind = part[1];
    const characters = CLASSES[kind.toLowerCase()];
    if (characters !== undefined && kind === kind.toLowerCase()) return isInClass ? characters : `[${characters}]`;
    if (characters !== undefined && !isInClass) return `[^${characters}]`;
    if (/[bB]/.test(kind) && !isInClass) return `(?a:${part})`;
    if (/[nrtvfux]/.test(kind) || !/\w/.test(kind)) return part;
    return refuse(part);
  };
  const inClass = (part: string): string => {
    const inner = /^\[(\^?)([^]*)\]$/.exec(part)!;
    if (inner[2] === '') return refuse(part);
    const written = inner[2].replaceAll(/\\[^]|[[&|~]|--/g, (found) =>
      found === '--' ? refuse(part) : found.startsWith('\\') ? escaped(found, true) : `\\${found}`,
    );
    return `[${inner[1]}${written}]`;
  };
  if (flags.includes('v')) refuse('the flag "v"');
  if (/\\u\{/.test(pattern)) refuse(String.raw`\u{`);
  const isMultiline = flags.includes('m');
  const parts = pattern.replaceAll(PARTS, (part) => {
    if (part.startsWith('\\')) return escaped(part, false);
    if (part.length > 1 && part.startsWith('[')) return inClass(part);
    if (/^\(\?<?[=!]/.test(part) && part.includes('<')) return refuse(`${part}...)`);
    if (part === '(?') return refuse('(?');
    if (part.startsWith('(?<')) return part.replace('<', 'P<');
    if (part === '.') return flags.includes('s') ? String.raw`[\s\S]` : `[^${LINE_END}]`;
    if (part === '^') return isMultiline ? `(?<![^${LINE_END}])` : String.raw`\A`;
    if (part === '$') return isMultiline ? `(?![^${LINE_END}])` : String.raw`\Z`;
    return part === '{' ? String.raw`\{` : part;
  });
  return flags.includes('i') ? `(?i)${parts}` : parts;
}
