/**
 * Creates samples as a dishonest worker would: one thing is changed, and everything that follows from it is adjusted where the worker can.
 */

import type { Sample } from '../src/grpo/update/batch.ts';
import type { RejectionReason, SampleClaim } from '../src/extensions/rooms/index.ts';
import { concatTokens, RESPONSE_FIELDS } from '../src/rollout/tokenLog.ts';
import type { GenerateRequest, Generation, TurnEngine, Trajectory } from '../src/rollout/types.ts';
import { keyedRng, type Rng } from '../src/tasks/random.ts';

export interface ClaimedSample {
  sample: Sample;
  claim: SampleClaim;
}

interface Forgery {
  /** Reasons for which the verifier may reject the forged sample. */
  reasons: readonly RejectionReason[];
  /**
   * Returns a forged copy of an honest sample; undefined if the sample has nothing that can be forged in this way.
   * @param group honest samples of the same problem
   */
  forge(honest: ClaimedSample, rng: Rng, group: readonly ClaimedSample[]): ClaimedSample | undefined;
}

/** Returns a copy with its own arrays, changed by `change`. Undefined if `change` returns false, because there is nothing to change. */
function changed(
  { sample, claim }: ClaimedSample,
  change: (trajectory: Trajectory, sample: Sample) => unknown,
): ClaimedSample | undefined {
  const copy = { ...sample, trajectory: structuredClone(sample.trajectory) };
  return change(copy.trajectory, copy) === false ? undefined : { sample: copy, claim };
}

/** Returns the positions of response tokens that the model sampled (`drawn` 1), or did not sample (0). */
const places = ({ mask }: Trajectory, drawn: 0 | 1) => [...mask.keys()].filter((t) => mask[t] === drawn);
const VOCAB = 512;
const otherToken = (id: number, rng: Rng) => (id + 1 + rng.int(0, VOCAB - 2)) % VOCAB;
const TOKENS = ['promptIds', 'responseIds'] as const;

function cut(trajectory: Trajectory, length: number): void {
  Object.assign(trajectory, concatTokens([trajectory], RESPONSE_FIELDS, { end: length }));
}

/**
 * Reasons to reject a sample with a changed prompt or tool token: the key does not sample the tokens that follow after the changed text, or
 * a replay of the agent loop differs.
 */
const AFTER: readonly RejectionReason[] = ['forged token', 'forged log-probs', 'wrong weights', 'forged mask'];

/** Forgeries by name. */
export const FORGERIES: Record<string, Forgery> = {
  'one token replaced by any other': {
    // With another token, the turn can parse differently, for example as a tool call. The replay of the agent loop then differs before the
    // token is checked.
    reasons: ['forged token', 'wrong weights', 'forged mask', 'forged ending', 'forged messages', 'forged reward'],
    forge: (honest, rng) =>
      changed(honest, (trajectory) => {
        const t = rng.pick(places(trajectory, 1));
        trajectory.responseIds[t] = otherToken(trajectory.responseIds[t], rng);
      }),
  },
  'drawn honestly by another key': {
    reasons: ['forged token'],
    forge({ sample }, rng, group) {
      const text = (of: Sample) => of.trajectory.responseIds.join();
      const others = group.filter((other) => text(other.sample) !== text(sample));
      return others.length > 0 ? { sample, claim: rng.pick(others).claim } : undefined;
    },
  },
  'one log-prob changed': {
    reasons: ['forged log-probs'],
    forge: (honest, rng) =>
      changed(honest, ({ logProbs, ...rest }) => {
        logProbs[rng.pick(places({ logProbs, ...rest }, 1))] += (rng.int(0, 1) * 2 - 1) * (0.01 + rng.uniform());
      }),
  },
  'every log-prob 0.01 lower': {
    reasons: ['forged log-probs'],
    forge: (honest) =>
      changed(honest, (trajectory) => {
        for (const t of places(trajectory, 1)) trajectory.logProbs[t] -= 0.01;
      }),
  },
  'a tool said something else': {
    reasons: AFTER,
    forge: (honest, rng) =>
      changed(honest, (trajectory) => {
        const said = places(trajectory, 0);
        if (said.length === 0) return false;
        const t = rng.pick(said);
        return (trajectory.responseIds[t] = otherToken(trajectory.responseIds[t], rng)) >= 0;
      }),
  },
  'a drawn token said to be not drawn': {
    reasons: ['forged mask'],
    forge: (honest, rng) =>
      changed(honest, (trajectory) => (trajectory.mask[rng.pick(places(trajectory, 1))] = 0) === 0),
  },
  "a tool's token said to be drawn": {
    reasons: AFTER,
    forge: (honest, rng) =>
      changed(honest, (trajectory) => {
        const said = places(trajectory, 0);
        return said.length > 0 && (trajectory.mask[rng.pick(said)] = 1) === 1;
      }),
  },
  'cut short': {
    reasons: ['forged mask', 'forged ending'],
    forge: (honest, rng) =>
      changed(honest, (trajectory) => {
        const { length } = trajectory.responseIds;
        return length > 1 && cut(trajectory, rng.int(1, length - 1));
      }),
  },
  'another prompt': {
    reasons: ['wrong prompt', ...AFTER],
    forge: (honest, rng) =>
      changed(honest, ({ promptIds }) => {
        const t = rng.int(0, promptIds.length - 1);
        promptIds[t] = otherToken(promptIds[t], rng);
      }),
  },
  'another end': {
    reasons: ['forged ending'],
    forge: (honest, rng) =>
      changed(honest, (trajectory) => {
        const key = rng.pick(['numTurns', 'numToolCalls', 'numToolErrors', 'stopReason'] as const);
        if (key === 'stopReason') trajectory.stopReason = trajectory.stopReason === 'done' ? 'completed' : 'done';
        else trajectory[key]++;
      }),
  },
  'another text': {
    reasons: ['forged messages'],
    forge: (honest, rng) =>
      changed(honest, (_, sample) => {
        const at = rng.int(0, sample.messages.length - 1);
        sample.messages = sample.messages.map((message, m) =>
          m === at ? { ...message, content: `${message.content}.` } : message,
        );
      }),
  },
  'another reward': {
    reasons: ['forged reward'],
    forge: (honest, rng) =>
      changed(honest, (_, sample) => {
        const key = rng.pick(['score', 'acc'] as const);
        sample.reward = { ...sample.reward, [key]: sample.reward[key] === 1 ? 0 : 1 };
      }),
  },
  'of no form': {
    reasons: ['malformed'],
    forge: (honest, rng) => {
      const bad = rng.pick(['length', 'type', 'vocabulary', 'number', 'uid', 's', 'claim'] as const);
      const { claim } = honest;
      if (bad === 'uid') return { ...honest, claim: { ...claim, uid: `${claim.uid}x` } };
      if (bad === 's') return { ...honest, claim: { ...claim, s: 1e6 } };
      if (bad === 'claim') return { ...honest, claim: { ...claim, step: claim.step + 1 } };
      return changed(honest, (trajectory) => {
        if (bad === 'length') trajectory.logProbs = trajectory.logProbs.slice(1);
        if (bad === 'type') Object.assign(trajectory, { responseIds: [...trajectory.responseIds] });
        if (bad === 'vocabulary') trajectory[rng.pick(TOKENS)][0] = VOCAB + rng.int(0, 99);
        if (bad === 'number') trajectory.logProbs[0] = NaN;
      });
    },
  },
};

/**
 * A rollout engine that replaces one token of each sample and continues honestly after it, with the right keys and log-probs. `redrawn`:
 * the token is sampled again from the same distribution, with another key. `neighbour`: the nearest other token before or after the honest
 * one in the cumulative distribution.
 */
export class ForgingEngine implements TurnEngine {
  readonly #inner: TurnEngine;
  readonly #how: 'redrawn' | 'neighbour';
  readonly #vocabSize: number;
  readonly #forged = new Set<string>();
  #asked = 0;

  constructor(inner: TurnEngine, how: 'redrawn' | 'neighbour', vocabSize: number) {
    [this.#inner, this.#how, this.#vocabSize] = [inner, how, vocabSize];
  }

  async generate(request: GenerateRequest): Promise<Generation> {
    const { requestId, sampling } = request;
    if (this.#forged.has(requestId)) return this.#inner.generate(request);
    this.#forged.add(requestId);
    const rng = keyedRng('forge', ...request.key);
    const honest = await this.#once(request);
    const t = rng.int(0, honest.tokenIds.length - 1);
    const forged = await this.#otherToken(request, honest, t, rng);
    const { tokenIds, logProbs, weightVersions } = forged;
    const drawn = { tokenIds, logProbs, ...(weightVersions && { weightVersions }) };
    const stopped = sampling.stopTokenIds.includes(tokenIds[t]);
    if (stopped || t + 1 === sampling.maxNewTokens) return { ...drawn, stopReason: stopped ? 'stop' : 'length' };
    return this.#inner.generate({ ...request, drawn });
  }

  /** Returns the first t tokens of a turn, then another token at position t with its log-prob. */
  async #otherToken(request: GenerateRequest, honest: Generation, t: number, rng: Rng): Promise<Generation> {
    const { logMass: _, ...all } = honest;
    const drawn = {
      tokenIds: all.tokenIds.slice(0, t),
      logProbs: all.logProbs.slice(0, t),
      ...(all.weightVersions && { weightVersions: all.weightVersions.slice(0, t) }),
    };
    const next = (more: Partial<GenerateRequest>, logitBias?: [number, number][]) => {
      const sampling = { ...request.sampling, maxNewTokens: t + 1, ...(logitBias && { logitBias }) };
      return this.#once({ ...request, ...(t > 0 && { drawn }), sampling, ...more });
    };
    if (this.#how === 'neighbour') {
      const up = honest.tokenIds[t] + (rng.int(0, 1) * 2 - 1);
      const token = up < 0 ? 1 : up >= this.#vocabSize ? this.#vocabSize - 2 : up;
      return next({}, [[token, 1e4]]);
    }
    for (let attempt = 1; ; attempt++) {
      const other = await next({ key: [request.key[0] ^ attempt, request.key[1]] });
      if (other.tokenIds[t] !== honest.tokenIds[t]) return other;
      // Eight keys sampled the same token, so the model is almost certain of the token. Forbid the token to get another one.
      if (attempt === 8) return next({ key: [1, attempt] }, [[honest.tokenIds[t], -1e4]]);
    }
  }

  /** Generates under a separate request id, and then releases the request. */
  async #once(request: GenerateRequest): Promise<Generation> {
    const requestId = `${request.requestId}/${this.#asked++}`;
    try {
      return await this.#inner.generate({ ...request, requestId });
    } finally {
      this.#inner.release(requestId);
    }
  }

  release(requestId: string): void {
    this.#inner.release(requestId);
  }

  abort(requestIds: string[]): void {
    this.#inner.abort(requestIds);
  }
}
