/** Texts from outside that contain the chat template's own tokens, complete, in parts and disguised. None may become a control token. */

import { Isolated, judged } from './isolated.ts';
import type { CampaignPart } from './part.ts';
import { hostileTexts } from './tokens/texts.ts';
import { tokenizers } from './tokenizers.ts';

export const part: CampaignPart = {
  name: 'tokens',
  async run({ seed, full }) {
    const { default: code } = await import('./tokens/judge.ts?inline-worker');
    const isolated = new Isolated(code);
    const all = tokenizers();
    const inputs = hostileTexts(seed, full ? 1200 : 150).map((texts, i) => {
      const { name, json, config } = all[i % all.length];
      const shown = JSON.stringify(texts).slice(0, 120);
      return { name: `${name}: ${shown} (${i} of seed ${seed})`, input: { name, json, config, texts } };
    });
    try {
      const row = await judged(isolated, 'special tokens in problems, messages and tool outputs', inputs);
      return [{ ...row, note: `${all.length} tokenizers` }];
    } finally {
      await isolated.close();
    }
  },
};
