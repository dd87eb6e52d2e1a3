/** The same training step by other libraries, each in a process of its own on the same adapter. */

import { spawn } from 'node:child_process';
import { Gpu } from '../src/gpu/device.ts';
import { createTfjsEngine } from '../src/model/tfjsEngine.ts';
import { HEADLINE, plainBatch, randomModel, trainShape } from './models.ts';
import { trainRate, trainStep } from './train.ts';
import { bestSeconds } from './timing.ts';

/** What a peer's process prints. */
export interface PeerResult {
  tokensPerSecond: number;
  /** [E] of the headline batch before the first step: what ours must agree with. */
  logProbs: number[];
}

export type PeerName = 'tfjs';

const AGREE = 1e-3;

/** In the peer's process: measures it. */
export async function runPeer(quick: boolean): Promise<PeerResult> {
  const gpu = await Gpu.create();
  const batch = plainBatch(...trainShape(quick), HEADLINE.vocabSize);
  const engine = await createTfjsEngine(gpu, randomModel(gpu, HEADLINE), batch.tokens.length);
  const { logProbs } = await engine.logProbs(batch, { temperature: 1 });
  const seconds = await bestSeconds(() => trainStep(engine, batch), quick ? 1 : 2);
  return { tokensPerSecond: trainRate(HEADLINE, batch, seconds).tokensPerSecond, logProbs: [...logProbs] };
}

/** Starts the peer's process and waits for its result. Throws with its errors when it fails. */
export async function askPeer(name: PeerName, quick: boolean): Promise<PeerResult> {
  const args = [process.argv[1], '--peer', name, ...(quick ? ['--quick'] : [])];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let [out, errors] = ['', ''];
  child.stdout.on('data', (part: Buffer) => (out += part.toString()));
  child.stderr.on('data', (part: Buffer) => (errors += part.toString()));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  const line = out.trim().split('\n').at(-1) ?? '';
  if (code !== 0 || !line.startsWith('{'))
    throw new Error(`Peer ${name} ended with code ${code}: ${errors.slice(-2000)}`);
  return JSON.parse(line) as PeerResult;
}

/** Ours over theirs. Throws when the peer computed something else: then it is not a peer. */
export function ratioTo(name: PeerName, peer: PeerResult, tokensPerSecond: number, logProbs: Float32Array): number {
  const apart = logProbs.reduce((top, x, e) => Math.max(top, Math.abs(x - peer.logProbs[e])), 0);
  if (!(apart <= AGREE))
    throw new Error(`Peer ${name} has log-probs ${apart} away from ours; at most ${AGREE} is allowed.`);
  return tokensPerSecond / peer.tokensPerSecond;
}
