/** `webgrpo/yaml`: configs from YAML text. Apart from the library, since the YAML reader is a fifth of its size. */

export { parseSftConfig, parseTrainConfig } from './grpo/config/text.ts';
