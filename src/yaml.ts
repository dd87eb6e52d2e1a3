/**
 * `webgrpo/yaml`: reads configs from YAML text. It is separate from the main entry, because the YAML parser is a fifth of that entry's
 * size.
 */

export { parseSftConfig, parseTrainConfig } from './grpo/config/text.ts';
