/**
 * Attacks V1 to V8 by untrusted workers of a room. For each attack, counts what the worker gains if the verification lacks the rule against
 * the attack, and with the rule. A toy policy samples the tokens. Agent loop, sampling, replay, verifier, leases and signatures are real.
 */

import { readFileSync } from 'node:fs';
import {
  checkDraws,
  drawBounds,
  Leases,
  newUserKey,
  replaySample,
  SampleVerifier,
  Signer,
  signedBy,
  textSignedBy,
  TOLERANCE,
} from '../src/extensions/rooms/index.ts';
import { resolveTrainConfig } from '../src/grpo/config/resolve.ts';
import { generateOptions } from '../src/grpo/generate/options.ts';
import { generateSamples, randomKey } from '../src/grpo/generate/samples.ts';
import type { PromptGroup } from '../src/grpo/pipeline/types.ts';
import type { Sample } from '../src/grpo/update/batch.ts';
import { uniformAt } from '../src/model/random.ts';
import { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import type { GenerateRequest, Generation, TurnEngine } from '../src/rollout/types.ts';
import { gsm8kToolTask } from '../src/tasks/gsm8k/task.ts';
import { hash, keyedRng } from '../src/tasks/random.ts';
import type { Task } from '../src/tasks/task.ts';
import type { CampaignPart, CampaignRow } from './part.ts';
import { ToyPolicy, ToyTurns } from './rooms/toy.ts';

/** Version of the weights that the prompts require. The two versions before it are also stored. */
const VERSION = 3;
const STEP = 4;
const N = 8;
const BATCH = 400;
const readJson = (name: string) => JSON.parse(readFileSync(`checkpoints/gsm8k-tool/${name}`, 'utf8')) as unknown;

interface Claimed {
  sample: Sample;
  number: number;
  s: number;
}

/** A room's config and task, and its controller's verifier. */
class Room {
  readonly task: Task = gsm8kToolTask();
  readonly tokenizer = new ChatTokenizer(readJson('tokenizer.json'), readJson('tokenizer_config.json'));
  readonly policy = new ToyPolicy();
  readonly config;

  constructor(seed: number) {
    this.config = resolveTrainConfig({
      name: 'rooms',
      seed,
      model: { path: 'toy' },
      data: { maxPromptLength: 160, maxResponseLength: 24 },
      rollout: { n: N },
    });
  }

  groupOf(number: number): PromptGroup {
    return { number, step: STEP, problem: this.task.train(number % 500, this.config.seed) as PromptGroup['problem'] };
  }

  /** Generates samples, in groups from `first` on, as a worker's agent loops do. */
  async generate(rollout: TurnEngine, count: number, first = 0): Promise<Claimed[]> {
    const { config, task, tokenizer } = this;
    const options = generateOptions({ config, engine: { rollout, tokenizer }, task }, STEP, N);
    const numbers = Array.from({ length: Math.ceil(count / N) }, (_, i) => first + i);
    const problems = numbers.map((number) => this.groupOf(number).problem);
    const { samples } = await generateSamples(problems, { ...options, firstGroup: first, globalStep: STEP });
    return samples.map((sample, i) => ({ sample, number: numbers[Math.floor(i / N)], s: i % N }));
  }

  /** Verifies claims like a controller that does not exclude any worker. Returns the number of claims by result. */
  async verify(claims: readonly Claimed[], { task = this.task } = {}): Promise<Record<string, number>> {
    const { config, tokenizer, policy } = this;
    const groups = new Map(claims.map(({ number }) => [`${STEP}.${number}`, this.groupOf(number)]));
    const verifier = new SampleVerifier({
      ...{ config, tokenizer, task, vocabSize: 512, groupOf: (uid) => groups.get(uid) },
      weightsOf: (version) => policy.modelOf(version),
    });
    const results: Record<string, number> = {};
    for (let at = 0; at < claims.length; at += BATCH) {
      const batch = claims
        .slice(at, at + BATCH)
        .map(({ sample, number, s }) =>
          verifier.verify(sample, { uid: `${STEP}.${number}`, number, step: STEP, s, version: VERSION }),
        );
      for (const verdict of await Promise.all(batch)) {
        const result = verdict.accepted ? 'accepted' : verdict.reason;
        results[result] = (results[result] ?? 0) + 1;
      }
    }
    return results;
  }

  /**
   * Verifies tokens without the rule that all tokens use one version of the weights: each token is checked with the version that it claims.
   * Returns the accepted samples.
   */
  async acceptedByOwnVersions(claims: readonly Claimed[]): Promise<number> {
    let accepted = 0;
    for (const {
      sample: { trajectory },
      number,
      s,
    } of claims) {
      const key = randomKey(this.config.seed, STEP, number, s);
      const { weightVersions = new Uint32Array(), mask } = trajectory;
      const isRight = async (version: number) => {
        const own = mask.map((m, t) => (m === 1 && weightVersions[t] === version ? 1 : 0));
        const drawn = { group: number, key, version, trajectory: { ...trajectory, mask: own } };
        const [bounds] = await drawBounds([drawn], (v) => this.policy.modelOf(v), {
          temperature: 1,
          maxTokenLen: 4096,
        });
        return checkDraws(drawn, bounds, TOLERANCE).rejection === undefined;
      };
      const all = await Promise.all([...new Set(weightVersions)].map(isRight));
      if (all.every(Boolean)) accepted++;
    }
    return accepted;
  }
}

const differ = (a: Claimed, b: Claimed): boolean =>
  a.sample.trajectory.responseIds.some((id, t) => id !== b.sample.trajectory.responseIds[t]);

/** Returns a row for forged samples. Each accepted sample counts as a failure. */
function row(attack: string, tried: number, results: Record<string, number>, without: string): CampaignRow {
  const { accepted = 0, ...reasons } = results;
  const why = Object.entries(reasons).map(([reason, count]) => `${count} ${reason}`);
  const failures = accepted > 0 ? [`${attack}: ${accepted} accepted`] : [];
  return {
    what: attack,
    tried,
    wrong: accepted,
    note: `without the rule: ${without}; now: ${why.join(', ')}`,
    failures,
  };
}

/** Attacks V1 to V3: tokens sampled with versions of the weights other than the prompt's version. */
async function versions(room: Room, count: number): Promise<CampaignRow[]> {
  const { policy } = room;
  const honest = await room.generate(new ToyTurns(policy, () => VERSION), count);
  // For each token, the worker picks the version of the weights that samples the largest token id. Any other preference would serve as
  // well.
  const best = (key: readonly [number, number], position: number) =>
    [VERSION, VERSION - 1, VERSION - 2].reduce((a, b) =>
      policy.draw(b, key, position).id > policy.draw(a, key, position).id ? b : a,
    );
  const chosen: Claimed[] = [];
  for (let first = 0; chosen.length < count; first += Math.ceil(count / N)) {
    const own = await room.generate(new ToyTurns(policy, best), count, first);
    const right = first === 0 ? honest : await room.generate(new ToyTurns(policy, () => VERSION), count, first);
    chosen.push(...own.filter((claim, i) => differ(claim, right[i])));
  }
  const forged = chosen.slice(0, count);
  const hidden = forged.map(({ sample, ...claim }) => {
    const weightVersions = new Uint32Array(sample.trajectory.responseIds.length).fill(VERSION);
    return { ...claim, sample: { ...sample, trajectory: { ...sample.trajectory, weightVersions } } };
  });
  const garbage = honest.map(({ sample, ...claim }) => {
    const weightVersions = new Uint32Array(sample.trajectory.responseIds.length);
    return { ...claim, sample: { ...sample, trajectory: { ...sample.trajectory, weightVersions } } };
  });
  const older = await room.generate(new ToyTurns(policy, () => VERSION - 1), count);
  const [byOwn, olderByOwn] = [await room.acceptedByOwnVersions(forged), await room.acceptedByOwnVersions(older)];
  return [
    row('V1: the version chosen token by token', count, await room.verify(forged), `${byOwn} accepted`),
    row('V1: the same, all said to be of the prompt', count, await room.verify(hidden), 'rejected too'),
    row('V2: any tokens, said to be of version 0', count, await room.verify(garbage), `${count} vetoed, none counted`),
    row('V3: drawn by the version before the prompt', older.length, await room.verify(older), `${olderByOwn} accepted, then dropped for age`),
  ]; // oxfmt-ignore
}

/** A model that always generates one given turn. */
class ScriptedCall implements TurnEngine {
  readonly #ids: Uint32Array;
  constructor(ids: Uint32Array) {
    this.#ids = ids;
  }
  generate({ sampling }: GenerateRequest): Promise<Generation> {
    const tokenIds = this.#ids.slice(0, sampling.maxNewTokens);
    const logProbs = new Float32Array(tokenIds.length).fill(-1);
    const weightVersions = new Uint32Array(tokenIds.length).fill(VERSION);
    return Promise.resolve({
      tokenIds,
      logProbs,
      weightVersions,
      stopReason: tokenIds.length < this.#ids.length ? 'length' : 'stop',
    });
  }
  release(): void {}
  abort(): void {}
}

/** Attack V5: tool calls with arguments that the model did not sample. */
async function ownArguments(seed: number, count: number): Promise<CampaignRow> {
  const room = new Room(seed);
  room.config.data.maxResponseLength = 150;
  const { tokenizer, config } = room;
  let calls = 0;
  const spied: Task = {
    ...room.task,
    tools: room.task.tools!.map((tool) => ({ ...tool, execute: () => (calls++, 'ran') })),
  };
  const said = '<tool_call>{"name":"calculator","arguments":{"expression":"6*7"}}</tool_call>';
  const worker = new ScriptedCall(Uint32Array.of(...tokenizer.encode(said), tokenizer.eosTokenIds[0]));
  const forged = await room.generate(worker, count);
  for (const { sample, number, s } of forged) {
    const claim = { uid: '', number, step: STEP, s, version: VERSION };
    const replay = { config, task: spied, tokenizer };
    await replaySample(replay, room.groupOf(number).problem, sample, claim).catch(() => undefined); // rejects: the spied tool's output differs
  }
  const before = calls;
  calls = 0;
  const results = await room.verify(forged, { task: spied });
  const without = `${before} calls ran before the draws were checked`;
  return {
    ...row(
      'V5: calls with own arguments',
      count,
      { ...results, accepted: (results['accepted'] ?? 0) + calls },
      without,
    ),
  };
}

/**
 * Attack V4: a worker that takes every group it can get, sends heartbeats for ever, and never sends a sample. One honest worker competes
 * with it.
 */
function hold(count: number): CampaignRow {
  const [silentMs, deadlineMs, second] = [30_000, 600_000, 1000];
  const run = (limits: { deadlineMs: number; maxHeld: number }) => {
    const leases = new Leases({ silentMs, ...limits });
    for (let i = 0; i < count; i++) leases.offer(String(i), String(i));
    const held: string[] = [];
    let done = 0;
    const end = Math.ceil(count / 10) * second + 2 * deadlineMs;
    for (let now = 0; now < end && done < count; now += second) {
      for (let uid; (uid = leases.take('evil', now, ['evil', 'honest'])) !== undefined;) held.push(uid);
      leases.heard('evil', held, now);
      for (let i = 0; i < 10; i++) {
        const uid = leases.take('honest', now, ['evil', 'honest']);
        if (uid === undefined) break;
        leases.end(uid, now);
        done++;
      }
    }
    return count - done;
  };
  const lost = run({ deadlineMs, maxHeld: 16 });
  const before = run({ deadlineMs: Infinity, maxHeld: Infinity });
  const results = { accepted: lost, 'generated by the honest worker': count - lost };
  return row('V4: groups held for ever', count, results, `${before} held for ever`);
}

/** Attacks V6 and V8: messages in the name of another worker. The NATS server cannot tell the two workers apart. */
async function otherNames(count: number): Promise<CampaignRow[]> {
  const [victim, own] = [await newUserKey(), await newUserKey()];
  const signer = await Signer.of(own.seed);
  const accepted = async (read: (i: number) => Promise<unknown>) => {
    let all = 0;
    for (let i = 0; i < count; i++)
      await read(i).then(
        () => all++,
        () => undefined,
      );
    return { accepted: all, 'not signed by it': count - all };
  };
  const text = (i: number) => textSignedBy(victim.id, signer.text(`{"v":4,"groups":[],"left":true,"i":${i}}`));
  const sample = async (i: number) => signedBy(victim.id, await signer.bytes(new TextEncoder().encode(`sample ${i}`)));
  return [
    row(
      'V6: groups taken, ended or kept in the name of another',
      count,
      await accepted(text),
      'any worker could (not run)',
    ),
    row('V8: samples in the name of another, to exclude it', count, await accepted(sample), 'signed before, too'),
  ];
}

/**
 * Attack V7: the worker chooses among the tokens of a large vocabulary that are within the verifier's tolerance of cumulative probability.
 */
function tail(seed: number, count: number): CampaignRow[] {
  const [vocabulary, T, prompt] = [50_000, 100, 10];
  const rng = keyedRng('tail', seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - rng.uniform())) * Math.cos(2 * Math.PI * rng.uniform());
  const masses = Float64Array.from({ length: vocabulary }, () => Math.exp(3 * normal()));
  const sum = masses.reduce((a, b) => a + b, 0);
  const cdf = new Float32Array(vocabulary + 1);
  let all = 0;
  masses.forEach((mass, j) => (cdf[j + 1] = all += mass / sum));
  const tokenAt = (goal: number): number => {
    let [low, high] = [0, vocabulary - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (goal < cdf[middle + 1]) high = middle;
      else low = middle + 1;
    }
    return low;
  };
  const absolute = { ...TOLERANCE, share: Infinity, near: 1 };
  const found = { samples: 0, tried: 0, without: 0, choices: 0, tokens: 0, accepted: 0, one: 0 };
  for (let i = 0; found.tried < count; i++) {
    found.samples++;
    const key = [hash('tail', seed, i), i] as const;
    const right = Array.from({ length: T }, (_, t) =>
      tokenAt(Math.fround(uniformAt(key, prompt + t) * cdf[vocabulary])),
    );
    // At every position, take the token that is farthest from the right one within the tolerance.
    const chosen = right.map((_, t) => {
      const u = uniformAt(key, prompt + t) * cdf[vocabulary];
      const [low, high] = [tokenAt(u - 0.9 * TOLERANCE.draw), tokenAt(u + 0.9 * TOLERANCE.draw)];
      found.choices += high > low ? high - low + 1 : 0;
      found.tokens += high > low ? 1 : 0;
      return high;
    });
    const check = (ids: number[], tolerance: typeof TOLERANCE) => {
      const of = (value: (id: number) => number) => Float32Array.from(ids, value);
      const logProbs = of((id) => Math.log(cdf[id + 1] - cdf[id]));
      const bounds = {
        logProbs,
        below: of((id) => cdf[id]),
        through: of((id) => cdf[id + 1]),
        total: of(() => cdf[vocabulary]),
      };
      const trajectory = {
        ...{ promptIds: new Uint32Array(prompt), responseIds: Uint32Array.from(ids), mask: new Uint8Array(T).fill(1) },
        ...{ logProbs, logMass: new Float32Array(T), stopReason: 'max_tokens' as const },
        ...{ numTurns: 1, numToolCalls: 0, numToolErrors: 0 },
      };
      return checkDraws({ group: 0, key, version: 0, trajectory }, bounds, tolerance).rejection === undefined;
    };
    // The rule allows two near tokens per sample, because rounding can cause them. An attack needs more.
    if (chosen.filter((id, t) => id !== right[t]).length <= 2) continue;
    found.tried++;
    if (check(chosen, absolute)) found.without++;
    if (check(chosen, TOLERANCE)) found.accepted++;
    const first = chosen.findIndex((id, t) => id !== right[t]);
    if (
      first >= 0 &&
      check(
        right.map((id, t) => (t === first ? chosen[t] : id)),
        TOLERANCE,
      )
    )
      found.one++;
  }
  const mean = (found.choices / found.tokens).toFixed(0);
  const without = `${found.without} accepted, ${mean} tokens to choose from at ${((100 * found.tokens) / found.samples / T).toFixed(0)}% of tokens`;
  const results = { accepted: found.accepted, 'forged token': count - found.accepted };
  const what = `V7: near tokens of a vocabulary of ${vocabulary}, ${T} tokens a sample`;
  return [row(what, count, results, `${without}; one such token a sample passes still (${found.one} of ${count})`)];
}

/** Honest workers must be accepted: one on the controller's adapter, and one on an adapter whose probabilities differ slightly. */
async function honestWorkers(room: Room, count: number): Promise<CampaignRow[]> {
  const rows: CampaignRow[] = [];
  for (const [name, noise] of [['the same adapter', 0], ['an adapter whose probabilities differ by up to 1e-5', 1e-5]] as const) {
    const claims = await room.generate(new ToyTurns(new ToyPolicy(noise), () => VERSION), count);
    const { accepted = 0, ...reasons } = await room.verify(claims);
    const wrong = claims.length - accepted;
    const failures = wrong > 0 ? [`honest, ${name}: ${JSON.stringify(reasons)}`] : [];
    rows.push({ what: `an honest worker on ${name}: all accepted`, tried: claims.length, wrong, failures });
  } // oxfmt-ignore
  return rows;
}

export const part: CampaignPart = {
  name: 'rooms',
  async run({ seed, full, say }) {
    const count = full ? 10_000 : 160;
    const room = new Room(seed);
    const rows: CampaignRow[] = [];
    const add = (found: CampaignRow[]) => {
      rows.push(...found);
      for (const { what, tried, wrong, note } of found) say(`${what}: ${wrong} of ${tried} (${note ?? ''})`);
    };
    add(await versions(room, count));
    add([hold(count)]);
    add([await ownArguments(seed, count)]);
    add(await otherNames(count));
    add(tail(seed, count));
    add(await honestWorkers(room, count));
    return rows;
  },
};
