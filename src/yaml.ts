/**
 * `webgrpo/yaml`: configs from YAML text. Separate from the library, because the YAML parser is a fifth of its size.
 */

export { parseSftConfig } from './extensions/sft/text.ts';
export { parseTrainConfig } from './grpo/config/text.ts';
