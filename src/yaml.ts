/**
 * `webgrpo/yaml`: reads configs from YAML text. It is separate from the main entry, because the YAML parser is a fifth of that entry's
 * size.
 */

export { parseSftConfig } from './extensions/sft/text.ts';
export { parseTrainConfig } from './extensions/yaml/text.ts';
