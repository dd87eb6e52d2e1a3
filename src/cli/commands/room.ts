/** `webgrpo room`: trains on this machine with samples that other machines generate. */

import { join } from 'node:path';
import { existsSync } from 'node:fs';
import { InputError } from '../../errors.ts';
import { checkTrainRules } from '../../grpo/config/rules.ts';
import { parseTrainConfig } from '../../extensions/yaml/index.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { hasRewardModels } from '../../grpo/generate/options.ts';
import { completedConfig, withLowered } from '../../grpo/generate/trainingSet.ts';
import { CancelledError } from '../../grpo/generate/samples.ts';
import type { RollouterFactory } from '../../grpo/pipeline/source.ts';
import { pipelineOf } from '../../grpo/pipeline/settings.ts';
import { bringWeights } from '../../grpo/pipeline/sharedWeights.ts';
import {
  checkVerifiable,
  groupsAtOnce,
  nameOf,
  NatsRollouter,
  openedKey,
  readableAlone,
  readObject,
  RoomHost,
  VerifiedSamples,
  type WeightStore,
} from '../../extensions/rooms/index.ts';
import { collectWeights } from '../../model/checkpoint/checkpoint.ts';
import { writeSafetensors } from '../../model/checkpoint/safetensors.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import { otherEngineOf } from '../../workers/engineSpec.ts';
import { engineSizes, policySizes } from '../../workers/localEngine.ts';
import { splitSpecs } from '../../workers/splitEngine.ts';
import { numberFlag, oneFile, type ParsedArgs, refuseFlags } from '../args.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { holdFolder } from '../process/heldFolder.ts';
import { STOPS } from '../process/interrupt.ts';
import type { ServerOptions } from '../room/natsServer.ts';
import { openServer, type RoomServer } from '../room/openRoom.ts';
import type { CommandEngine } from '../process/io.ts';
import { openTraining } from '../run/namedRun.ts';
import { say } from '../run/progress.ts';
import { checkpointToResume, resumeCommand } from '../run/resume.ts';
import { openEngine, openSession, type CommandSession } from '../run/session.ts';
import { withWarmStart } from '../run/warmStart.ts';
import { type FinishedRun, trainInto } from '../run/shownRun.ts';
import { tellOfRun } from './train.ts';
import { plural } from '../../ui/format.ts';

const PORT = 4222;

export const room: Command = {
  summary: 'train on samples that other machines generate',
  usage: [
    'room configs/gsm8k-tool.yaml',
    'room configs/gsm8k-tool.yaml --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem',
    'room CONFIG --nats nats://controller:PASSWORD@host:4222 --worker worker:PASSWORD',
  ],
  reads: ['words', 'settings'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    host: { value: 'HOST', help: 'address to listen on (default 127.0.0.1: this machine alone)' },
    port: { value: 'N', help: `port for Node, the next one for pages (default ${PORT}; 0 = any that are free)` },
    'tls-cert': { value: 'FILE', help: 'certificate of the host, PEM' },
    'tls-key': { value: 'FILE', help: 'its key' },
    'max-workers': { value: 'N', help: 'machines that may join (default 64)' },
    'ack-wait-s': {
      value: 'S',
      help: 'seconds without a message after which a group goes to another worker (default 30)',
    },
    'deadline-s': {
      value: 'S',
      help: 'seconds after which a group goes to another worker in any case (default 600)',
    },
    'second-share': {
      value: 'SHARE',
      help: 'share of groups that a second worker generates too, and whose samples are compared, such as 0.02 (default 0)',
    },
    nats: {
      value: 'URL',
      help: 'a running NATS server, with the controller as nats://user:password@host:port',
    },
    worker: { value: 'USER:PASSWORD', help: "the workers' user on that server; docs/guides/rooms.md has its rights" },
    'trust-workers': { help: 'do not verify samples: anyone with the join code then decides what is trained' },
  },
  details: () => STOPS,
  async run({ positionals, overrides, flags, lists }, io) {
    const named = oneFile(positionals, 'config or run folder');
    const { text, ...options } = await openTraining(named, overrides);
    const config = asynchronous(parseTrainConfig(text, { ...options, note: say }), options.source);
    checkConfig(config);
    const trustsWorkers = flags['trust-workers'] === true;
    if (trustsWorkers) refuseFlags(flags, ['second-share'], 'with --trust-workers');
    if (trustsWorkers) say(TRUSTING);
    else expectVerifiable(config);
    const path = join(config.trainer.defaultLocalDir, config.name);
    const ackWaitMs = 1000 * numberFlag(flags, 'ack-wait-s', 30, [1, 3600]);
    const deadlineMs = 1000 * numberFlag(flags, 'deadline-s', 600, [1, 86_400]);
    const secondShare = numberFlag(flags, 'second-share', 0, [0, 1]);
    const maxWorkers = numberFlag(flags, 'max-workers', 64, [1, 10_000]);
    const server = { ...serverOptions(flags, `${path}-room`), maxConnections: 2 * maxWorkers + 16 };
    const run = {
      config,
      server,
      running: runningServer(flags),
      maxWorkers,
      ackWaitMs,
      deadlineMs,
      secondShare,
      trustsWorkers,
    };
    using held = holdFolder(path);
    const finished = await trainInRoom(RunFolder.open(held.files, path), run);
    return tellOfRun(io, config, finished, resumeCommand(named, { overrides, flags, lists }, 'room'));
  },
};

/** A room's run: its config, how samples of workers are verified, and how long a worker can be silent or hold a group of samples. */
interface RoomRun {
  config: TrainConfig;
  server: ServerOptions;
  /** The existing NATS server to use; undefined = start one. */
  running?: RoomServer | undefined;
  maxWorkers: number;
  ackWaitMs: number;
  deadlineMs: number;
  secondShare: number;
  trustsWorkers: boolean;
}

async function trainInRoom(folder: RunFolder, run: RoomRun): Promise<FinishedRun> {
  const { ackWaitMs, deadlineMs, maxWorkers, trustsWorkers } = run;
  // The engine is created for the pipeline `on-policy`: workers read copies of the weights, so the trainer can update its own in place.
  const onDevice = { ...run.config, trainer: { ...run.config.trainer, pipeline: 'on-policy' as const } };
  const server = await openServer(run.server, run.running); // before kernels are compiled, so that errors of the server are reported early
  const closing: (() => void | Promise<void>)[] = [() => server.close()];
  const close = async () => {
    for (const end of closing.splice(0).reverse()) await end();
  };
  try {
    const checks = trustsWorkers ? undefined : otherEngineOf(policySizes(onDevice, 'score'));
    const session = await openSession(await withWarmStart(onDevice), 'train', undefined, checks);
    closing.push(() => session.close());
    const { engine, task } = session;
    const config = completedConfig(run.config, task, engine, session.lora && true);
    const checkpoint = await checkpointToResume(config);
    const checking = trustsWorkers
      ? undefined
      : await openChecking(session, withLowered(onDevice, engine.lowered?.values));
    if (checking) closing.push(() => checking.destroy());
    const { maxAge, maxGroups } = pipelineOf(config);
    // Each stored version of the weights is a complete file, so only as many versions are stored as the pipeline's staleness allows.
    // Samples of older versions are generated again.
    const keptVersions = Math.min(maxAge, Math.max(1, Math.ceil(config.asyncTraining.stalenessThreshold))) + 2;
    const host = await RoomHost.open(server.connection, {
      ...{ config: { ...config }, maxWorkers, ackWaitMs, deadlineMs, resume: checkpoint !== undefined, say },
      ...{
        verifies: !trustsWorkers,
        maxHeld: groupsAtOnce(config),
        keptVersions,
        prepare: (weights) => putModel(weights, session),
      },
    });
    for (const line of server.invitation) say(line);
    const verified =
      checking &&
      new VerifiedSamples({
        ...{ config, task, tokenizer: engine.tokenizer, model: checking.model, keep: keptVersions },
        fileOf: (version) => readObject(server.connection, nameOf(version)),
      });
    const { cancelled, onStop, end } = cancelling(host);
    closing.push(end);
    const rollouter: RollouterFactory = (_, put) =>
      new NatsRollouter(host, {
        ...{ n: config.rollout.n, put, check: verified?.check ?? readableAlone },
        ...(verified && { maxAge: keptVersions - 2, secondShare: run.secondShare }),
        handledAtOnce: Math.max(64, maxGroups * config.rollout.n),
        cancelled,
        onEnd: (uid) => verified?.ended(uid),
        metrics: () => verified?.metrics() ?? {},
        exportWeights: async (version) => {
          await bringWeights(engine, version); // evaluations are generated on this machine
          const file = writeSafetensors(await engine.model.exportWeights());
          verified?.publish(version, file);
          return file;
        },
      });
    try {
      return await trainInto({
        folder,
        config,
        from: checkpoint,
        open: async () => ({ ...session, rollouter, close: () => {} }),
        waitsMs: [], // the room ends with its device
        onStop,
      });
    } finally {
      await host.end();
      for (const line of countLines(host)) say(line);
    }
  } finally {
    await close();
  }
}

const LOOK_EVERY_MS = 200;
/**
 * Number of checks in a row without an answer after which the NATS server counts as lost (at least five seconds). Checks are counted
 * instead of seconds, because a busy machine can receive answers late.
 */
const GONE_LOOKS = 25;

/** Watches the room once the run is asked to stop. Cancels a step that waits for samples if no worker is left to generate them. */
function cancelling(host: RoomHost) {
  let cancel!: (reason: Error) => void;
  const cancelled = new Promise<never>((_, reject) => (cancel = reject));
  cancelled.catch(() => {}); // it can reject before the trainer awaits it
  let looking: ReturnType<typeof setInterval> | undefined;
  let asked: Promise<unknown> | undefined;
  let silent = 0;
  const end = () => clearInterval(looking);
  const look = () => {
    if (host.present() === 0) cancel(new CancelledError('No worker is connected.'));
    asked ??= host.connection
      .flush()
      .then(() => (silent = 0))
      .catch(() => {}) // the connection was lost, and can return
      .finally(() => (asked = undefined));
    if (silent++ < GONE_LOOKS) return;
    end();
    say('The NATS server of the room does not answer: stopping without it.');
    cancel(new CancelledError('The server is lost.'));
    void host.connection.close(); // rejects everything that waits for the connection
  };
  const onStop = (): string => {
    looking = setInterval(look, LOOK_EVERY_MS);
    look();
    return host.present() === 0
      ? 'Stopping before the next step: no worker is connected.'
      : 'Stopping after this step, or once no worker is connected. Press Ctrl-C again to quit without saving.';
  };
  return { cancelled, onStop, end };
}

/**
 * Opens a second copy of the model, with which the controller verifies samples while the first copy is updated.
 * @param config config of the session's engine, with the settings that were lowered for both engines
 */
function openChecking({ model, lora }: CommandSession, config: TrainConfig): Promise<CommandEngine> {
  const { lowerToFit: _, ...sizes } = policySizes(config, 'score');
  const adapters = lora && { lora };
  const trains = { ...engineSizes(config), ...adapters };
  const others = config.trainer.placement === 'split' ? Object.values(splitSpecs(trains)) : [trains];
  say('a second model verifies the samples of workers');
  return openEngine(model, { ...sizes, ...adapters, otherEngines: others.map(otherEngineOf) });
}

/** Stores the files from which a worker creates its engine: model sizes, tokenizer, and the weights at the start of the training. */
async function putModel(files: WeightStore, { model, lora }: CommandSession): Promise<void> {
  const { config, tokenizerJson, tokenizerConfigJson, weights } = model;
  const file = JSON.stringify({ config, tokenizerJson, tokenizerConfigJson, ...(lora && { lora }) });
  await files.put('model', new TextEncoder().encode(file));
  await files.put('base', writeSafetensors(weights instanceof Map ? weights : await collectWeights(weights)));
}

function countLines({ workers }: RoomHost): string[] {
  return Array.from(workers.values(), ({ name, accepted, rejected, refused, duplicates, leftOut }) => {
    const sum = (counts: Record<string, number>) => Object.values(counts).reduce((a, b) => a + b, 0);
    const out = leftOut ? ', left out' : '';
    const reasons = Object.entries(rejected).map(([why, count]) => `${count} ${why}`);
    const why = reasons.length > 0 ? ` (${reasons.join(', ')})` : '';
    return `worker ${name}: ${plural(accepted, 'sample')}, ${sum(rejected)} rejected${why}, ${plural(sum(refused), 'message')} refused, ${duplicates} twice${out}`;
  });
}

const TRUSTING =
  'WARNING: --trust-workers: samples are not verified. Anyone with the join code can make up tokens, log-probs and rewards, and so train the ' +
  'model to anything, unnoticed.';

/**
 * Returns the config that a room trains with. An on-policy config is changed to the fully asynchronous pipeline with stalenessThreshold 0:
 * no sample is stale, and groups are trained in order. Throws InputError for settings that this pipeline does not allow.
 */
function asynchronous(config: TrainConfig, source: string): TrainConfig {
  if (pipelineOf(config).isAsync) return config;
  const { requireBatches: _, ...asyncTraining } = config.asyncTraining;
  const room: TrainConfig = {
    ...config,
    trainer: { ...config.trainer, pipeline: 'fully-async' },
    asyncTraining: { ...asyncTraining, stalenessThreshold: 0, triggerParameterSyncStep: 1, onStale: 'wait' },
  };
  checkTrainRules(room, source);
  return room;
}

/** Throws InputError if the controller could not detect forged samples under this config. */
function expectVerifiable(config: TrainConfig): void {
  try {
    checkVerifiable(config);
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    throw new InputError(`${error.message} Or give --trust-workers, and the join code only to people you trust.`);
  }
}

/** Throws InputError for reward models, and for tasks that no worker would join. */
function checkConfig({ reward, task }: TrainConfig): void {
  if (hasRewardModels(reward))
    throw new InputError(
      'Workers of a room score samples with the reward of the task. Leave out reward.judge, reward.model and reward.rubric.',
    );
  const opened = openedKey(task);
  if (opened !== undefined)
    throw new InputError(
      `task.${opened} names files, programs or addresses, which workers of a room do not open. Leave it out, or set task.module, of which each worker has a copy.`,
    );
}

function serverOptions(flags: ParsedArgs['flags'], folder: string): ServerOptions {
  const { host = '127.0.0.1', 'tls-cert': cert, 'tls-key': key } = flags;
  const asked = numberFlag(flags, 'port', PORT, [0, 65_534]);
  const [port, webSocketPort] = asked === 0 ? [-1, -1] : [asked, asked + 1];
  if ((cert === undefined) !== (key === undefined))
    throw new InputError('--tls-cert and --tls-key belong together. Give both or neither.');
  for (const file of [cert, key])
    if (typeof file === 'string' && !existsSync(file))
      throw new InputError(`There is no file ${file}. Give the path of a PEM file.`);
  const tls = typeof cert === 'string' && typeof key === 'string' ? { cert, key } : undefined;
  return { folder, host: String(host), port, webSocketPort, tls };
}

/** Returns the NATS server that `--nats` names; undefined without that flag. Throws InputError. */
function runningServer(flags: ParsedArgs['flags']): RoomServer | undefined {
  const { nats, worker } = flags;
  if (nats === undefined) {
    refuseFlags(flags, ['worker'], 'without --nats');
    return undefined;
  }
  refuseFlags(flags, ['host', 'port', 'tls-cert', 'tls-key'], 'with --nats, whose server runs already');
  const url = URL.canParse(String(nats)) ? new URL(String(nats)) : undefined;
  if (!url?.username || !url.password || typeof worker !== 'string' || !worker.includes(':'))
    throw new InputError(
      '--nats needs the controller in its URL, nats://user:password@host:port, and --worker user:password of the workers.',
    );
  const controller = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return { address: `${url.protocol}//${url.host}`, controller, worker };
}
