/** The files that `buildGsm8kTokenizer()` makes, which takes a second. tokenizer.test.ts compares both. */

import config from '../checkpoints/gsm8k-tool/tokenizer_config.json';
import tokenizer from '../checkpoints/gsm8k-tool/tokenizer.json';

export const gsm8kTokenizer: Record<'tokenizer' | 'config', Record<string, unknown>> = { tokenizer, config };
