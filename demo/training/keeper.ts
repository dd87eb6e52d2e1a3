/** Keeps a run's newest state: in memory for a GPU that is lost, in the browser's files for a page that is. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import { parameterCount } from '../../src/model/params.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { adapterFiles, modelFiles } from '../../src/runs/checkpointFolder.ts';
import type { FolderFiles } from '../../src/runs/fileSystem.ts';
import { loraOf } from '../../src/workers/engineSpec.ts';
import type { Autosave } from '../storage/autosave.ts';
import type { LoadedModel } from '../engine/files.ts';

/** Between two checkpoints lie so much training, a whole step, and so many times what the last one held the run up. */
const EVERY_MS = 10_000;
const TIMES_COST = 50;

/** Weights and two moments of a larger model would not fit into a page's memory beside the run. */
const MAX_BYTES = 512 * 2 ** 20;

/** What a state is taken from. */
export interface Running {
  trainer: GrpoTrainer;
  model: LoadedModel<unknown>;
}

export class Keeper {
  /** The newest state; undefined = the start. */
  checkpoint: Checkpoint | undefined;
  readonly #config: TrainConfig;
  readonly #autosave: Autosave | undefined;
  #step = 0;
  #keptAt = -Infinity;
  #cost = 0;
  #soon = false;

  /** @param autosave absent if the browser keeps no files @param checkpoint of a resumed run */
  constructor(config: TrainConfig, autosave: Autosave | undefined, checkpoint: Checkpoint | undefined) {
    [this.#config, this.#autosave, this.checkpoint] = [config, autosave, checkpoint];
    if (checkpoint) [this.#keptAt, this.#step] = [performance.now(), checkpoint.state.step];
  }

  /** Step of the newest state; -1 = there is none, and the run starts over. */
  get step(): number {
    return this.checkpoint?.state.step ?? -1;
  }

  /** Steps that a closed tab would lose. */
  get unsavedSteps(): number {
    return this.#step - Math.max(0, this.#autosave?.savedStep ?? 0);
  }

  /** Checkpoints after the step in hand, whatever the time. */
  keepSoon(): void {
    this.#soon = true;
  }

  /**
   * Logs what a step has shown, and keeps its state where it is time to, or `now`. The trainer waits for what this returns: the state's way
   * from the GPU, and not its way into files.
   */
  async afterStep(run: Running, metrics: Metrics, tries: LoggedRollout[], now: boolean): Promise<void> {
    const step = metrics['training/global_step'];
    this.#step = step;
    this.#autosave?.step(metrics, tries);
    const { saveFreq } = this.#config.trainer;
    const waited = performance.now() - this.#keptAt >= Math.max(EVERY_MS, TIMES_COST * this.#cost);
    const asked = now || this.#soon || (saveFreq > 0 && step % saveFreq === 0);
    // Before the first step there is nothing that starting over would not give.
    if (step > 0 && (waited || asked)) await this.keep(run);
  }

  /** Further values of a step that has been logged, or those of step 0, whenever they are known. */
  amend(metrics: Metrics): void {
    this.#autosave?.amend(metrics);
  }

  /** The state between two steps. */
  async keep({ trainer, model }: Running): Promise<void> {
    const { step } = trainer.state;
    if (this.step === step || this.#isTooLarge(model)) return;
    const start = performance.now();
    this.checkpoint = await trainer.checkpoint();
    this.#autosave?.save(step, this.#filesOf(model, this.checkpoint));
    [this.#keptAt, this.#soon] = [performance.now(), false];
    this.#cost = performance.measure('webgrpo: keep state', { start }).duration;
  }

  /** The run continues from its newest state: what came after is done again. */
  rewind(): void {
    this.#step = Math.max(0, this.step);
    this.#autosave?.rewind(this.step);
  }

  #isTooLarge({ config }: LoadedModel<unknown>): boolean {
    const bytes = 3 * 4 * parameterCount(config);
    if (loraOf(this.#config) || bytes <= MAX_BYTES) return false;
    const mib = (n: number) => `${Math.round(n / 2 ** 20)} MiB`;
    const text = `A state of this model takes ${mib(bytes)}, and the page keeps up to ${mib(MAX_BYTES)}; the command line saves it.`;
    this.#autosave?.onProblem(new Error(text));
    return true;
  }

  #filesOf(model: LoadedModel<unknown>, checkpoint: Checkpoint): FolderFiles {
    const { weights } = checkpoint;
    const lora = loraOf(this.#config);
    if (!lora) return modelFiles({ ...model, weights }, checkpoint);
    return adapterFiles({ lora, tensors: weights, baseModel: this.#config.model.path }, model, checkpoint);
  }
}
