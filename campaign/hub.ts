/**
 * A hub that sends wrong lengths, hashes, lists, ranges and redirects. Nothing must be written outside the cache, and the token must not
 * reach another host.
 */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { diskStore } from '../src/cli/diskStore.ts';
import { InputError } from '../src/errors.ts';
import { collectWeights } from '../src/model/checkpoint/checkpoint.ts';
import { fetchModel } from '../src/model/checkpoint/hub.ts';
import { openCheckpoint } from '../src/model/checkpoint/open.ts';
import { BODIES, type Lie, LISTINGS, LyingHub } from './hub/server.ts';
import type { CampaignPart } from './part.ts';

const LIMIT_MS = 10_000;
const TOKENS = ['hf_secret', 'hf_secret\n', ' hf_secret ', 'hf_\nsecret', 'hf_s\u00e9cret', '"hf_secret"'];

interface Case {
  lies: Lie[];
  token: string;
  address: 'repository' | 'folder';
}

function cases(seed: number, count: number): Case[] {
  const lie = fc.oneof(
    fc.record({ about: fc.constant('listing' as const), how: fc.nat(LISTINGS.length - 1) }),
    fc.record({
      about: fc.constantFrom('config.json', 'tokenizer.json', 'model.safetensors'),
      how: fc.nat(BODIES.length - 1),
    }),
  );
  const drawn = fc.record({
    lies: fc.array(lie, { minLength: 1, maxLength: 3 }),
    token: fc.constantFrom(...TOKENS),
    address: fc.constantFrom('repository' as const, 'repository' as const, 'folder' as const),
  });
  const each: Case[] = [
    ...LISTINGS.map((_, how) => ({ about: 'listing' as const, how })),
    ...BODIES.map((_, how) => ({ about: 'model.safetensors' as const, how })),
  ].map((one) => ({ lies: [one], token: TOKENS[0], address: 'repository' }));
  return [...each, ...fc.sample(drawn, { seed, numRuns: Math.max(0, count - each.length) })].slice(0, count);
}

/** Returns what went wrong in a download from the lying hub; undefined if nothing did. */
async function wrongOf(hub: LyingHub, { lies, token, address }: Case): Promise<string | undefined> {
  const outside = mkdtempSync(join(tmpdir(), 'webgrpo-campaign-'));
  const cache = join(outside, 'cache', 'models');
  hub.begin(lies);
  const model = address === 'repository' ? 'org/tiny' : `${hub.endpoint}/files`;
  const options = { endpoint: hub.endpoint, token, attempts: 2, waitMs: 1, silenceMs: 300 };
  const open = async () =>
    collectWeights((await openCheckpoint(await fetchModel(model, diskStore(cache), options))).weights);
  try {
    const timer = new Promise<string>((resolve) => setTimeout(resolve, LIMIT_MS, 'late').unref());
    const first = await Promise.race([open().catch((error: unknown) => error as Error), timer]);
    if (first === 'late') return `not done after ${LIMIT_MS / 1000} s`;
    if (first instanceof Error && !(first instanceof InputError)) return String(first.stack).slice(0, 200);
    if (first instanceof Error && /s(e|\u00e9)cret/.test(first.message)) return `the token stands in: ${first.message}`;
    if (hub.leaked.length > 0) return `the token went to ${hub.leaked.join()}`;
    const strange = readdirSync(outside).filter((name) => name !== 'cache');
    if (strange.length > 0 || existsSync('/tmp/x/pwned')) return `files outside of the cache: ${strange.join()}`;
    const isSame = (weights: unknown) =>
      JSON.stringify([...(weights as Map<string, { data: Float32Array }>)].map(([n, { data }]) => [n, data[0]])) ===
      hub.first;
    if (first instanceof Map && hub.isChecked(address) && !isSame(first)) return 'other weights than were expected';
    // The remains of a failed download must not prevent a later correct one.
    if (/\n|\u00e9|"/.test(token.trim())) return undefined;
    hub.begin([]);
    const again = await open().catch((error: unknown) => error as Error);
    return again instanceof Map && isSame(again)
      ? undefined
      : `then, of an honest hub: ${(again instanceof Error ? again.message : 'other weights').slice(0, 150)}`;
  } finally {
    rmSync(outside, { recursive: true, force: true });
  }
}

export const part: CampaignPart = {
  name: 'hub',
  async run({ seed, full }) {
    const hub = await LyingHub.start((file) => readFileSync(file));
    const failures: string[] = [];
    const all = cases(seed, full ? 300 : 60);
    try {
      for (const [i, one] of all.entries()) {
        const wrong = await wrongOf(hub, one);
        if (wrong !== undefined) failures.push(`hub: ${JSON.stringify(one)} (${i} of seed ${seed}): ${wrong}`);
      }
    } finally {
      hub.close();
    }
    return [{ what: 'a hub that lies', tried: all.length, wrong: failures.length, failures }];
  },
};
