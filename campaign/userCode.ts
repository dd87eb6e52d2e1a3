/**
 * Code of a user's own that goes wrong, in one step on a real engine: rewards, agent loops, tools and their parsers, losses,
 * advantages, problems and events. Each ends in one error that names it, in a sample left out, or in a text for the model;
 * no weight moves by it, and the next step is as if it had never been.
 */

import { FAULTS } from './userCode/faults.ts';
import { Bench } from './userCode/trial.ts';
import type { CampaignPart, CampaignRow } from './part.ts';

/** Of the table, in the short form: each so many, the first by the seed. */
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
