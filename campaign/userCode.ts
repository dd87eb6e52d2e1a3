/**
 * Errors in a user's own code, during one step on a real engine: rewards, agent loops, tools and their parsers, losses, advantages,
 * problems and events. Each fault must end in one error that names the fault, in a skipped sample, or in a text for the model. No weight
 * may change, and the next step must not be affected.
 */

import { FAULTS } from './userCode/faults.ts';
import { Bench } from './userCode/trial.ts';
import type { CampaignPart, CampaignRow } from './part.ts';

/** The short form runs one of every SHORT_STRIDE cases of the table. The seed selects the first. */
const SHORT_STRIDE = 12;

const KINDS: [string, RegExp][] = [
  ['rewards', /^a reward/],
  ['agent loops, tool parsers', /^(an agent loop|a loop|a sample|a tool parser)/],
  ['tools', /^a tool (?!parser)/],
  ['losses', /^a loss/],
  ['advantages', /^an advantage/],
  ['problems and events', /^(a problem|onSample)/],
];

export const userCode: CampaignPart = {
  name: 'userCode',
  async run({ seed, full, say }) {
    const chosen = FAULTS.filter((_, i) => full || i % SHORT_STRIDE === seed % SHORT_STRIDE);
    const rows = KINDS.map(([what]): CampaignRow => ({
      what: `a user's ${what} gone wrong: said or left out, the next step bit for bit`,
      tried: 0,
      wrong: 0,
      failures: [],
    }));
    const bench = await Bench.open();
    for (const [i, fault] of chosen.entries()) {
      if (i % 20 === 0) say(`${i} of ${chosen.length}`);
      const row = rows[KINDS.findIndex(([, pattern]) => pattern.test(fault.name))];
      for (const skip of fault.outcome === 'skipped' ? [false, true] : [false]) {
        row.tried++;
        const wrong = await bench.run(fault, skip);
        if (wrong === undefined) continue;
        row.wrong++;
        row.failures.push(`${fault.name}${skip ? ' (trainer.onError: skip)' : ''} ${wrong}`);
      }
    }
    bench.close();
    return rows.filter(({ tried }) => tried > 0);
  },
};
