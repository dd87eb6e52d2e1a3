/** Compares other libraries on the same model and batch: runs each library, checks its results, and compares its speed with webgrpo's. */

import { describe } from '../src/errors.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import type { Bench } from './bench.ts';
import { benchDecode } from './decode.ts';
import { HEADLINE, packOne, randomModel, sampleOf } from './models.ts';
import { peerPrompts } from './peers/decoding.ts';
import { adapterId, decodeCounts } from './peers/run.ts';
import { DECODE_PEERS, type DecodedSequences, TRAIN_PEERS } from './peers/types.ts';
import { headlineTrainer } from './train.ts';

/** Largest allowed difference of log-probs. A library that differs by more is not compared. */
const AGREE = 1e-3;
/** Number of sequences of a decode peer that are checked. */
const CHECKED = 32;

/** Runs all peers, and then fails if one of them failed. */
export async function benchPeers(bench: Bench): Promise<void> {
  const failed = [...(await trainPeers(bench)), ...(await decodePeers(bench))];
  if (failed.length > 0) throw new Error(`no ratio to ${failed.join(', ')}`);
}

// webgrpo runs before and after the peers, so that a change of the machine's speed does not distort the ratio.

async function trainPeers({ gpu, host, report, quick, rounds }: Bench): Promise<string[]> {
  const ours = await headlineTrainer(gpu, quick);
  await ours.step();
  const { logProbs: after } = await ours.engine.logProbs(ours.batch, { temperature: 1 });
  const before = await ours.rate(rounds);
  const speeds: Record<string, number> = {};
  const failed = await eachPeer(host, TRAIN_PEERS, async (name) => {
    const peer = await host.askPeer(name, quick);
    checkAdapter(name, peer, gpu);
    checkSame(`${name} before a step`, peer.logProbs, ours.logProbs);
    checkSame(`${name} after a step`, peer.logProbsAfter, after);
    speeds[name] = peer.tokensPerSecond;
  });
  const again = await ours.rate(rounds);
  const best = before.tokensPerSecond > again.tokensPerSecond ? before : again;
  const ratio = Object.fromEntries(Object.entries(speeds).map(([name, speed]) => [name, best.tokensPerSecond / speed]));
  report.train = { ...(report.train ?? best), ...(Object.keys(ratio).length > 0 && { ratio }) };
  return failed;
}

async function decodePeers({ gpu, host, report, quick, rounds }: Bench): Promise<string[]> {
  const turn = async () => {
    const rates = new Map<number, Awaited<ReturnType<typeof benchDecode>>>();
    for (const n of decodeCounts(quick)) rates.set(n, await benchDecode(gpu, n, quick ? 16 : 48, rounds));
    return rates;
  };
  const before = await turn();
  const speeds: Record<string, Record<string, number>> = {};
  const failed = await eachPeer(host, DECODE_PEERS, async (name) => {
    const peer = await host.askPeer(name, quick);
    checkAdapter(name, peer, gpu);
    for (const [n, decoded] of Object.entries(peer.decode)) {
      await checkDecoded(gpu, `${name} with ${n} sequences`, decoded);
      (speeds[n] ??= {})[name] = decoded.tokensPerSecond;
    }
  });
  const again = await turn();
  report.decode ??= {};
  for (const [n, rate] of before) {
    const best = Math.max(rate.tokensPerSecond, again.get(n)!.tokensPerSecond);
    const ratio = Object.fromEntries(Object.entries(speeds[n] ?? {}).map(([name, speed]) => [name, best / speed]));
    report.decode[n] = { ...(report.decode[n] ?? rate), ...(speeds[n] && { ratio }) };
  }
  return failed;
}

/** Returns the names of the peers that failed. Their messages are printed immediately. */
async function eachPeer<N extends string>(
  host: Bench['host'],
  names: readonly N[],
  run: (name: N) => Promise<void>,
): Promise<N[]> {
  const failed: N[] = [];
  for (const name of names) {
    host.say(`peer ${name}`);
    try {
      await run(name);
    } catch (error) {
      host.say(`peer ${name} failed: ${describe(error)}`);
      failed.push(name);
    }
  }
  return failed;
}

function checkAdapter(name: string, { adapter }: { adapter?: string }, gpu: Gpu): void {
  if (adapter !== undefined && adapter !== adapterId(gpu))
    throw new Error(`${name} ran on ${adapter}, ours on ${adapterId(gpu)}; a ratio between them would say nothing`);
}

/** Compares the log-prob that a peer gave to each token it chose with the log-prob in webgrpo's training pass. */
async function checkDecoded(gpu: Gpu, name: string, { tokens, logProbs }: DecodedSequences): Promise<void> {
  const checked = tokens.slice(0, CHECKED);
  const prompts = peerPrompts(checked.length);
  const batch = packOne(checked.map((ids, s) => ({ prompt: prompts[s], samples: [sampleOf(Uint32Array.from(ids))] })));
  const engine = new WgslEngine(gpu, randomModel(gpu, HEADLINE), batch.tokens.length);
  const ours = await engine.logProbs(batch, { temperature: 1 });
  checkSame(name, logProbs.slice(0, CHECKED).flat(), ours.logProbs);
}

function checkSame(name: string, theirs: number[], ours: Float32Array): void {
  const apart = ours.reduce((top, x, e) => Math.max(top, Math.abs(x - theirs[e])), 0);
  if (theirs.length !== ours.length || !(apart <= AGREE))
    throw new Error(
      `${name}: ${theirs.length} log-probs (ours ${ours.length}) up to ${apart} away from ours. At most ${AGREE} is allowed`,
    );
}
