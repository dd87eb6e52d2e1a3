/** `webgrpo serve`: an HTTP server with the APIs of OpenAI and Anthropic, which trains on the calls that a client's agent makes. */

import { join } from 'node:path';
import { ConfigError, DeviceLostError, InputError } from '../../errors.ts';
import { ApiError, checkConfig, ClientGroups, NO_TASK, runOverError } from '../../extensions/client/index.ts';
import { parseTrainConfig } from '../../extensions/yaml/index.ts';
import { checkTrainRules } from '../../grpo/config/rules.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { requestLosses } from '../../extensions/checks/index.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { writesSchemas } from '../../rollout/agent/prompt.ts';
import { toolParserOf } from '../../rollout/tools/parser.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import type { RunSession } from '../../runs/trainingRun.ts';
import { numberFlag, oneFile, type ParsedArgs } from '../args.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { holdFolder } from '../process/heldFolder.ts';
import { STOPS } from '../process/interrupt.ts';
import { type CommandEngine, currentIo } from '../process/io.ts';
import { openTraining } from '../run/namedRun.ts';
import { say } from '../run/progress.ts';
import { checkpointToResume, resumeCommand } from '../run/resume.ts';
import { openSession } from '../run/session.ts';
import { trainInto } from '../run/shownRun.ts';
import { withWarmStart } from '../run/warmStart.ts';
import { checkReach, listen, type Listening, type ListenOptions } from '../serve/listen.ts';
import { routes, type ServedRun } from '../serve/routes.ts';
import { tellOfRun } from './train.ts';
import { plural } from '../../ui/format.ts';

const PORT = 8000;

export const serve: Command = {
  summary: 'train an agent that calls the model through the API of OpenAI or Anthropic',
  usage: [
    'serve configs/gsm8k-tool.yaml',
    'serve configs/gsm8k-tool.yaml name=agent rollout.n=4 data.trainBatchSize=2 --steps manual',
    'serve CONFIG --host 0.0.0.0 --token TEXT',
  ],
  reads: ['words', 'settings'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    host: { value: 'HOST', help: 'address to listen on (default 127.0.0.1: this machine alone)' },
    port: { value: 'N', help: `port (default ${PORT}; 0 = any that is free)` },
    token: {
      value: 'TEXT',
      help: 'what requests must send as "Authorization: Bearer TEXT" or "x-api-key: TEXT" (or WEBGRPO_TOKEN)',
    },
    'allow-origin': {
      value: 'ORIGIN',
      repeatable: true,
      help: 'an origin whose pages may send requests, e.g. http://localhost:5173',
    },
    steps: {
      value: 'WHEN',
      help: 'auto = as soon as data.trainBatchSize groups are complete (default), manual = at POST /v1/step',
    },
    'timeout-s': { value: 'S', help: 'seconds without a call after which an episode is cancelled (default 600)' },
    strict: { help: 'refuse unknown fields, hints, other model names and temperatures instead of counting them' },
    evaluate: { help: "evaluate on the config's task, every trainer.testFreq steps (default: no evaluations)" },
  },
  details: () => STOPS,
  async run({ positionals, overrides, flags, lists }, io) {
    const named = oneFile(positionals, 'config or run folder');
    const { text, ...options } = await openTraining(named, overrides);
    const parsed = parseTrainConfig(text, { ...options, note: say });
    const isEvaluated = flags['evaluate'] === true;
    if (isEvaluated && parsed.trainer.testFreq === 0 && !parsed.trainer.valBeforeTrain)
      throw new InputError(
        '--evaluate evaluates every trainer.testFreq steps, which is 0, as in the config of a run that was served without ' +
          '--evaluate. Give trainer.testFreq=N, or trainer.valBeforeTrain=true for the start and the end alone.',
      );
    const config = isEvaluated ? parsed : withoutEvaluations(parsed, options.source);
    checkConfig(config); // before the model is read
    const settings = { ...readSettings(flags, lists), isEvaluated };
    const path = join(config.trainer.defaultLocalDir, config.name);
    using held = holdFolder(path);
    const served = new ServedDevices(config, settings);
    try {
      const finished = await trainInto({
        folder: RunFolder.open(held.files, path),
        config,
        from: await checkpointToResume(config),
        open: () => served.open(),
        onReady: () => served.serve(),
        onLogged: (metrics) => served.logged(metrics),
      });
      return tellOfRun(io, config, finished, resumeCommand(named, { overrides, flags, lists }, 'serve'));
    } finally {
      await served.close();
    }
  },
};

/** Returns the config of a run that is not evaluated. Throws InputError if a setting reads metrics of evaluations. */
function withoutEvaluations(config: TrainConfig, source: string): TrainConfig {
  const served = { ...config, trainer: { ...config.trainer, valBeforeTrain: false, testFreq: 0 } };
  try {
    checkTrainRules(served, source);
    return served;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new InputError(
      `${error.message} Give --evaluate too, without which webgrpo serve sets trainer.testFreq to 0.`,
    );
  }
}

interface Settings {
  listen: ListenOptions;
  timeoutS: number;
  /** True if a training step starts on a client's request; false if it starts as soon as enough groups are complete. */
  isManual: boolean;
  isEvaluated: boolean;
  /** True to refuse request fields that have no effect here. */
  isStrict: boolean;
}

/** A served run. Its HTTP server, episodes and complete groups survive the loss of a GPU device. */
class ServedDevices {
  readonly #config: TrainConfig;
  readonly #settings: Settings;
  #groups: ClientGroups | undefined;
  #engine: CommandEngine | undefined;
  #server: Listening | undefined;
  /** Metrics of the last finished step. */
  #metrics: Metrics | undefined;
  /** The client's request for a step that is not answered yet. */
  #asked: { resolve: (metrics: Metrics) => void; reject: (error: Error) => void } | undefined;

  constructor(config: TrainConfig, settings: Settings) {
    [this.#config, this.#settings] = [config, settings];
  }

  /** Opens a session on a new device. Open episodes continue on its engine. */
  async open(): Promise<RunSession> {
    const config = await withWarmStart(this.#config);
    const { timeoutS, isManual, isEvaluated, isStrict } = this.#settings;
    const session = await openSession(config, 'train', isEvaluated ? undefined : NO_TASK);
    const engine = (this.#engine = session.engine);
    const stepWhen = isManual ? 'asked' : 'complete';
    const limits = { timeoutS, stepWhen, outlives: true, strict: isStrict, note: say } as const;
    const close = async (error?: unknown) => {
      if (error instanceof DeviceLostError) this.#lose(engine, error);
      else await this.close(); // before the engine is closed
      session.close();
    };
    try {
      const source = (this.#groups ??= new ClientGroups(this.#config, engine, limits));
      return { ...session, source, close };
    } catch (error) {
      await close(error);
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#asked?.reject(runOverError());
    this.#asked = undefined;
    await this.#groups?.end();
    await this.#server?.close();
  }

  /** Continues open episodes on the engine of the current session. The first call also starts the HTTP server. */
  async serve(): Promise<void> {
    const [groups, engine] = [this.#groups!, this.#engine!];
    groups.attach(engine);
    void engine.lost.then((error) => groups.handleDeviceLoss(engine, error));
    this.#server ??= await this.#listen(groups, engine);
  }

  #lose(engine: CommandEngine, error: DeviceLostError): void {
    this.#groups?.handleDeviceLoss(engine, error);
    this.#groups?.requestStep(undefined);
    this.#asked?.reject(error);
    this.#asked = undefined;
  }

  /** Runs a training step that a client requests. Throws ApiError if another requested step is in progress. */
  #step(groups: ClientGroups, count: number): Promise<Metrics> {
    if (this.#asked) throw new ApiError('A step is in progress. Ask again when it is done.', { status: 409 });
    const done = new Promise<Metrics>((resolve, reject) => (this.#asked = { resolve, reject }));
    groups.requestStep(count);
    return done;
  }

  /** Answers the pending request for a step with the metrics of that step. */
  logged(metrics: Metrics): void {
    if (metrics['training/global_step'] === 0) return; // the evaluation before the first step
    this.#metrics = metrics;
    this.#asked?.resolve(metrics);
    this.#asked = undefined;
  }

  async #listen(groups: ClientGroups, { tokenizer }: CommandEngine): Promise<Listening> {
    const { rollout, data, name, trainer } = this.#config;
    const { isManual, listen: where } = this.#settings;
    const waiting = groups.size;
    if (waiting > 0)
      say(`${waiting} ${waiting === 1 ? 'episode was' : 'episodes were'} open or waited for a step: resumed`);
    const served: ServedRun = {
      groups,
      metrics: () => this.#metrics,
      trainBatchSize: data.trainBatchSize,
      ...(isManual && { step: async (count: number) => this.#step(groups, count) }),
    };
    const server = await listen(routes(served), where);
    const steps = isManual ? 'manual' : 'auto';
    say(
      `serving ${name} at ${server.url}/v1 (steps: ${steps}, ${plural(rollout.n, 'episode')} per group), until step ${trainer.totalTrainingSteps}`,
    );
    const { multiTurn } = rollout;
    const withSchemas = writesSchemas(rollout, tokenizer);
    for (const lost of requestLosses(tokenizer, toolParserOf(multiTurn.format), withSchemas)) say(lost);
    if (!withSchemas) {
      const setting = `rollout.multiTurn.toolSchemasInPrompt is ${String(multiTurn.toolSchemasInPrompt)}`;
      say(`tools of requests are not written into the prompt (${setting})`);
    }
    return server;
  }
}

function readSettings(flags: ParsedArgs['flags'], lists: ParsedArgs['lists'] = {}): Omit<Settings, 'isEvaluated'> {
  const { host = '127.0.0.1', token = currentIo().env['WEBGRPO_TOKEN'], steps = 'auto' } = flags;
  if (steps !== 'auto' && steps !== 'manual')
    throw new InputError(`--steps is "${String(steps)}"; allowed: auto, manual.`);
  const port = numberFlag(flags, 'port', PORT, [0, 65_535]);
  if (!Number.isInteger(port)) throw new InputError(`--port is ${port}; allowed: a whole number from 0 to 65535.`);
  if (token === '' || typeof token === 'boolean') throw new InputError('--token is empty. Give a text, or remove it.');
  checkReach(String(host), token);
  return {
    listen: { host: String(host), port, token, allowOrigins: lists['allow-origin'] ?? [] },
    timeoutS: numberFlag(flags, 'timeout-s', 600, [1, 86_400]),
    isManual: steps === 'manual',
    isStrict: flags['strict'] === true,
  };
}
