/** The tokenizer of a checkpoint, with all that the checkpoint says of the tokens that end a turn. */

import type { ModelConfig } from '../config.ts';
import { ChatTokenizer } from './chat.ts';

/** Source of a tokenizer: a checkpoint, or the spec of an engine. */
interface TokenizerSource {
  config: Pick<ModelConfig, 'eosTokenIds'>;
  tokenizerJson: unknown;
  tokenizerConfigJson: unknown;
}

/** The model's tokenizer: its turns end by the tokens of config.json, generation_config.json and `eos_token`. Throws InputError. */
export const modelTokenizer = (
  { config: { eosTokenIds }, tokenizerJson, tokenizerConfigJson }: TokenizerSource,
  chatTemplateKwargs: Record<string, unknown> = {},
): ChatTokenizer => new ChatTokenizer(tokenizerJson, tokenizerConfigJson, { eosTokenIds, chatTemplateKwargs });
