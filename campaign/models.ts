/** Untrusted models, adapters, tokenizers and chat templates: each must be refused with an error message, or be usable. */

import { Isolated, judged } from './isolated.ts';
import { templateCases, tokenizerCases } from './models/tokenizers.ts';
import { adapterCases, configCases, weightCases } from './models/weights.ts';
import type { CampaignPart, CampaignRow } from './part.ts';

const KINDS = {
  'safetensors and index files': [weightCases, 700],
  'config.json': [configCases, 600],
  adapters: [adapterCases, 300],
  'tokenizer.json, tokenizer_config.json': [tokenizerCases, 600],
  'chat templates': [templateCases, 300],
} as const;

export const part: CampaignPart = {
  name: 'models',
  async run({ seed, full, say }) {
    const { default: code } = await import('./models/judge.ts?inline-worker');
    const isolated = new Isolated(code);
    const rows: CampaignRow[] = [];
    try {
      for (const [what, [cases, count]] of Object.entries(KINDS)) {
        rows.push(await judged(isolated, what, cases(seed, full ? count : count / 10)));
        say(`${what}: ${rows[rows.length - 1].tried}`);
      }
    } finally {
      await isolated.close();
    }
    return rows;
  },
};
