import config from '../checkpoints/gsm8k-tool/tokenizer_config.json' with { type: 'json' };
import tokenizer from '../checkpoints/gsm8k-tool/tokenizer.json' with { type: 'json' };

/** Files equal to those of buildGsm8kTokenizer(), which takes a second of processor time. test/unit/tokenizer.test.ts compares them. */
export const GSM8K_TOKENIZER = { tokenizer, config };
