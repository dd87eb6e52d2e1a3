/**
 * Faults of the device at every phase of a step: the device is lost, has no memory for a buffer, or refuses a submit or a read-back. Each
 * must end in one error of its kind within ten seconds. The same work on a new device must then produce its usual results, bit for bit.
 */

import { installDawn } from '../src/cli/dawn.ts';
import { DeviceLostError, GpuError, OutOfMemoryError } from '../src/errors.ts';
import { mulberry32 } from '../src/model/random.ts';
import { type Fault, type FaultKind, FaultyDevices } from './device/faultyDevices.ts';
import { type Outcome, type Phase, PHASES, runScenario } from './device/scenario.ts';
import type { CampaignOptions, CampaignPart, CampaignRow } from './part.ts';

const LIMIT_MS = 10_000;
/** Milliseconds after which the complete form of this part ends. */
const FULL_MS = 330_000;

/** Names of the kinds of fault in the table, and the error class in which each must end. */
const KINDS: Record<FaultKind, { what: string; error: new (...args: never[]) => Error }> = {
  lost: { what: 'device lost', error: DeviceLostError },
  'out of memory': { what: 'out of memory at a buffer', error: OutOfMemoryError },
  validation: { what: 'a submit refused', error: GpuError },
  map: { what: 'a read-back refused', error: GpuError },
};

/** Note for operations that were not reached. Buffers are reused as reads end, so a phase creates fewer of them in some runs. */
const NOT_REACHED = 'not reached';

type Operations = Map<Phase, Record<FaultKind, number>>;

export const device: CampaignPart = { name: 'device', run };

async function run({ seed, full, say }: CampaignOptions): Promise<CampaignRow[]> {
  await installDawn();
  const devices = new FaultyDevices();
  const unheard: unknown[] = [];
  const hear = (reason: unknown) => void unheard.push(reason);
  process.on('unhandledRejection', hear);
  try {
    const { operations, outcome } = await undisturbed(devices);
    const counted = [...operations].map(([phase, { lost }]) => `${phase} ${lost}`).join(', ');
    say(`operations by phase: ${counted}`);
    const rows = Object.values(KINDS).map((kind): CampaignRow => ({
      what: rowOf(kind.what),
      tried: 0,
      wrong: 0,
      failures: [],
    }));
    const uniform = mulberry32(seed);
    const started = performance.now();
    const rounds = full ? 1000 : 1;
    for (let round = 0; round < rounds && performance.now() - started < FULL_MS; round++) {
      for (const [k, kind] of (Object.keys(KINDS) as FaultKind[]).entries()) {
        // The short form tries each kind of fault in two phases of a step, the complete form in all phases.
        const reached = PHASES.filter((phase) => (operations.get(phase)?.[kind] ?? 0) > 0);
        const start = Math.floor(uniform() * reached.length);
        for (const phase of full ? reached : [reached[start], reached[(start + 2) % reached.length]]) {
          const count = operations.get(phase)![kind];
          const lateMs = kind === 'lost' && uniform() < 0.5 ? 1 + Math.floor(uniform() * 20) : 0;
          const fault = { kind, at: 1 + Math.floor(uniform() * count), lateMs };
          const wrong = await tried(devices, phase, fault, outcome, unheard);
          if (wrong === NOT_REACHED) continue;
          rows[k].tried++;
          if (wrong === undefined) continue;
          rows[k].wrong++;
          rows[k].failures.push(`${kind} at operation ${fault.at} of "${phase}" (late ${lateMs} ms): ${wrong}`);
          say(rows[k].failures.at(-1)!);
        }
      }
      if (round % 5 === 4) say(`${rows.map(({ tried }) => tried).reduce((a, b) => a + b)} faults`);
    }
    return rows;
  } finally {
    process.off('unhandledRejection', hear);
    devices.uninstall();
  }
}

const rowOf = (what: string) =>
  `${what}, at any operation of a step: one error of its kind in 10 s, then bit for bit the same`;

async function undisturbed(devices: FaultyDevices): Promise<{ operations: Operations; outcome: Outcome }> {
  const operations: Operations = new Map();
  let phase: Phase | undefined;
  const close = () => phase && operations.set(phase, devices.counts);
  await runScenario(); // compiles kernels
  const outcome = await runScenario((next) => {
    close();
    phase = next;
    devices.arm();
  });
  close();
  return { operations, outcome };
}

/** Returns what went wrong after a device fault; undefined = nothing. */
async function tried(
  devices: FaultyDevices,
  phase: Phase,
  fault: Fault,
  outcome: Outcome,
  unheard: unknown[],
): Promise<string | undefined> {
  await devices.settled();
  unheard.length = 0;
  devices.arm();
  const ended = await within(
    LIMIT_MS,
    runScenario((now) => now === phase && devices.arm(fault)),
  );
  const { struck } = devices;
  devices.arm();
  if (struck === 0) return NOT_REACHED;
  if (ended === 'hangs') return `no end in ${LIMIT_MS / 1000} s`;
  if (!('error' in ended)) return 'it was not noticed';
  const { error } = ended;
  if (!(error instanceof KINDS[fault.kind].error)) return `it ended in ${String(error)}`;
  await devices.settled();
  const after = await within(LIMIT_MS, runScenario());
  if (after === 'hangs') return 'the run after it hangs';
  if ('error' in after) return `the run after it ended in ${String(after.error)}`;
  if (after.value !== outcome) return 'the run after it came out otherwise';
  return unheard.length > 0 ? `a rejection that nobody heard: ${String(unheard[0])}` : undefined;
}

async function within<T>(ms: number, work: Promise<T>): Promise<{ value: T } | { error: unknown } | 'hangs'> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const limit = new Promise<'hangs'>((resolve) => (timer = setTimeout(() => resolve('hangs'), ms)));
  const ended = work.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  return Promise.race([ended, limit]).finally(() => clearTimeout(timer));
}
