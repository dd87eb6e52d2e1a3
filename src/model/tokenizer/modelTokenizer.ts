/** Creates the tokenizer of a checkpoint. Its end tokens are those of all files of the checkpoint. */

import type { ModelConfig } from '../config.ts';
import { ChatTokenizer } from './chat.ts';

/** Data from which a tokenizer is created: a checkpoint, or the description of an engine. */
interface TokenizerSource {
  config: Pick<ModelConfig, 'eosTokenIds'>;
  tokenizerJson: unknown;
  tokenizerConfigJson: unknown;
}

/**
 * Returns the model's tokenizer. A turn ends with any of the end tokens in config.json, generation_config.json and
 * `eos_token`. Throws InputError.
 */
export const modelTokenizer = (
  { config: { eosTokenIds }, tokenizerJson, tokenizerConfigJson }: TokenizerSource,
  chatTemplateKwargs: Record<string, unknown> = {},
): ChatTokenizer => new ChatTokenizer(tokenizerJson, tokenizerConfigJson, { eosTokenIds, chatTemplateKwargs });
