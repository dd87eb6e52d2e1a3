/** Invalid messages to the engine's worker: messages of wrong types, too early, or sent twice. Each is answered by an error. */

import * as Comlink from 'comlink';
import fc from 'fast-check';
import type { EngineApi } from '../src/workers/engineApi.ts';
import { createEngineHost } from '../src/workers/engineHost.ts';
import { createDeviceEngine } from '../src/workers/localEngine.ts';
import type { CampaignPart } from './part.ts';

const LIMIT_MS = 5000;
/** Methods of the engine that are called. Node has no OPFS, so `openModel` must fail too. */
const CALLS: (keyof EngineApi)[] = [
  ...([
    'openModel',
    'load',
    'describe',
    'logProbs',
    'forwardBackward',
    'optimizerStep',
    'exportState',
    'importState',
  ] as const),
  ...(['generate', 'release', 'abort', 'resetCache', 'pause', 'resume', 'takeStats'] as const),
];
const ODD = [
  undefined,
  null,
  true,
  0,
  -1,
  NaN,
  1e300,
  '',
  'policy',
  'weights',
  '__proto__',
  [],
  [null],
  {},
  new Float32Array(3),
];
const SPECS = [
  { weights: 'opened' },
  { weights: new Map(), config: {} },
  { weights: null, config: null, dtype: 'float16', engine: 'tfjs' },
  { weights: new Map(), config: { numHiddenLayers: 1e9 }, maxMemoryMib: -1 },
];

/** Methods that may succeed before an engine is loaded, because they have nothing to do then. */
const MAY_RESOLVE = ['destroy', 'useVocabulary'];

async function wrongOf(api: EngineApi, call: string, given: unknown[]): Promise<string | undefined> {
  const method = (api as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>)[call];
  const late = new Promise<string>((resolve) => setTimeout(resolve, LIMIT_MS, 'late').unref());
  const answer = method(...given).then(
    () => (MAY_RESOLVE.includes(call) ? undefined : 'is answered as if it were right'),
    (error: unknown) => (error instanceof Error && error.message !== '' ? undefined : `rejects with ${String(error)}`),
  );
  const found = await Promise.race([answer, late]);
  return found === 'late' ? `no answer in ${LIMIT_MS / 1000} s` : found;
}

export const part: CampaignPart = {
  name: 'messages',
  async run({ seed, full }) {
    const { port1, port2 } = new MessageChannel();
    Comlink.expose(createEngineHost(createDeviceEngine), port1);
    const remote = Comlink.wrap<EngineApi>(port2);
    const api = remote as unknown as EngineApi;
    const drawn = fc.sample(
      fc.tuple(
        fc.constantFrom(...CALLS, 'nothing', 'constructor', 'toString2'),
        fc.array(fc.constantFrom(...ODD, ...SPECS), { maxLength: 4 }),
      ),
      { seed, numRuns: full ? 400 : 100 },
    );
    const calls = ['destroy', 'destroy', 'describe', 'useVocabulary', 'takeStats'];
    const again: [string, unknown[]][] = calls.map((call) => [call, []]);
    again.push(['release', [0, []]]); // permitted once, because there was nothing to release
    const failures: string[] = [];
    let tried = 0;
    for (const [call, given] of [...again, ...drawn]) {
      if (call === 'constructor') continue;
      tried++;
      const wrong = await wrongOf(api, call, given);
      if (wrong !== undefined) failures.push(`messages: ${call}(${JSON.stringify(given).slice(0, 100)}): ${wrong}`);
    }
    remote[Comlink.releaseProxy]();
    for (const port of [port1, port2]) port.close();
    return [
      { what: "messages to the engine's worker, too early or of wrong types", tried, wrong: failures.length, failures },
    ];
  },
};
