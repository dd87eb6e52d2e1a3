import config from '../checkpoints/gsm8k-tool/tokenizer_config.json' with { type: 'json' };
import tokenizer from '../checkpoints/gsm8k-tool/tokenizer.json' with { type: 'json' };

/** What buildGsm8kTokenizer() makes in a second of processor time. test/unit/tokenizer.test.ts compares the two. */
export const GSM8K_TOKENIZER = { tokenizer, config };
