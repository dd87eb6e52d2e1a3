/** Measures the cost of recording the profile: the same GRPO steps with and without it, in turn. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PhaseClock, stepProfile } from '../src/runs/profileLog.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { GrpoTrainer } from '../src/grpo/trainer.ts';
import { loadModel } from '../src/model/weights/load.ts';
import { modelTokenizer } from '../src/model/tokenizer/modelTokenizer.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../src/rollout/server/server.ts';
import { engineSizes } from '../src/workers/engineSpec.ts';
import type { Report } from './report.ts';
import type { StepInputs } from './step.ts';
import { median } from './timing.ts';

type Variant = 'off' | 'events' | 'gpu';

/** Duration of a step: wall time, and CPU time of this process, to which other programs on the machine do not add. */
interface Taken {
  ms: number;
  cpuMs: number;
}

export async function benchProfile(
  gpu: Gpu,
  inputs: StepInputs,
  rounds: number,
): Promise<NonNullable<Report['profile']>> {
  const { config } = inputs.loaded;
  const { maxPositions } = engineSizes(inputs.config);
  const bench = new ProfileBench(gpu, inputs, await loadModel(gpu, config, maxPositions, inputs.loaded.weights));
  const variants: Variant[] = gpu.startTimer() ? ['off', 'events', 'gpu'] : ['off', 'events'];
  for (const variant of variants) await bench.step(variant); // compiles kernels
  const taken: Record<Variant, Taken[]> = { off: [], events: [], gpu: [] };
  for (let round = 0; round < rounds; round++)
    for (const variant of round % 2 ? variants.toReversed() : variants) taken[variant].push(await bench.step(variant));
  bench.destroy();
  const share = (variant: Variant, of: keyof Taken) =>
    median(taken[variant].map((step, i) => step[of] / taken.off[i][of])) - 1;
  const cost = (variant: Variant) => ({ clock: share(variant, 'ms'), processor: share(variant, 'cpuMs') });
  return {
    rounds,
    stepMs: median(taken.off.map(({ ms }) => ms)),
    events: cost('events'),
    ...(variants.includes('gpu') && { withGpuTimes: cost('gpu') }),
  };
}

/**
 * One engine with one trainer per variant. All variants run the same steps. The learning rate is so small that no step changes the model.
 */
class ProfileBench {
  readonly #gpu: Gpu;
  readonly #trainers: Record<Variant, GrpoTrainer>;
  readonly #clock = new PhaseClock();
  readonly #folder = mkdtempSync(join(tmpdir(), 'webgrpo-bench-'));

  constructor(gpu: Gpu, { config, task, loaded }: StepInputs, model: Awaited<ReturnType<typeof loadModel>>) {
    this.#gpu = gpu;
    const sizes = engineSizes(config);
    const engine = {
      tokenizer: modelTokenizer(loaded),
      model: new WgslEngine(gpu, model, sizes.maxTokenLen),
      rollout: new WgslRolloutEngine(gpu, model, sizes.rollout),
    };
    const still = { ...config, actor: { ...config.actor, optim: { ...config.actor.optim, lr: 1e-30 } } };
    const trainer = (profile: boolean) => {
      const own = { ...still, trainer: { ...still.trainer, profile } };
      return new GrpoTrainer({
        config: own,
        task,
        engine,
        ...(profile && { onPhase: (phase) => this.#clock.mark(phase) }),
      });
    };
    this.#trainers = { off: trainer(false), events: trainer(true), gpu: trainer(true) };
  }

  /** Runs the next step of a variant and writes its profile as a run does. */
  async step(variant: Variant): Promise<Taken> {
    if (variant === 'gpu') this.#gpu.startTimer();
    else this.#gpu.stopTimer();
    const [started, used] = [performance.now(), process.cpuUsage()];
    const { samples } = await this.#trainers[variant].step();
    if (variant !== 'off') {
      const { step, phases, samples: lines } = stepProfile(1, samples, this.#clock.take());
      const text = [{ step, phases }, ...lines].map((line) => `${JSON.stringify(line)}\n`).join('');
      writeFileSync(join(this.#folder, `step-${variant}.jsonl`), text);
    }
    const { user, system } = process.cpuUsage(used);
    return { ms: performance.now() - started, cpuMs: (user + system) / 1000 };
  }

  destroy(): void {
    this.#gpu.stopTimer();
    rmSync(this.#folder, { recursive: true });
  }
}
