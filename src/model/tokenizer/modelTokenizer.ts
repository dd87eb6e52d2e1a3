/** Creates the tokenizer of a checkpoint, with the end tokens of all its files. */

import type { ModelConfig } from '../config.ts';
import { ChatTokenizer } from './chat.ts';

/** Source of a tokenizer: a checkpoint, or the spec of an engine. */
interface TokenizerSource {
  config: Pick<ModelConfig, 'eosTokenIds'>;
  tokenizerJson: unknown;
  tokenizerConfigJson: unknown;
}

/**
 * Returns the model's tokenizer. Its turns end with the tokens of config.json, generation_config.json and `eos_token`.
 * Throws InputError.
 */
export const modelTokenizer = (
  { config: { eosTokenIds }, tokenizerJson, tokenizerConfigJson }: TokenizerSource,
  chatTemplateKwargs: Record<string, unknown> = {},
): ChatTokenizer => new ChatTokenizer(tokenizerJson, tokenizerConfigJson, { eosTokenIds, chatTemplateKwargs });
