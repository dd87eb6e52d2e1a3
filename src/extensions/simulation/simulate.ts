/**
 * Simulates a recorded run on other devices by a discrete-event model of rollout, queue and trainer. Its rules are those of our pipelines
 * (src/grpo/pipeline), which follow verl (docs/advance/one_step_off.md and fully_async.md).
 */

import type { Schedule } from '../../grpo/pipeline/settings.ts';
import { all, Clock, type Process, type Signal } from './clock.ts';
import { RolloutDevice } from './rolloutDevice.ts';
import { type Group, type Room, Rollouter } from './rollouter.ts';
import type { Workload } from './workload.ts';

/** Pipeline and devices to simulate. */
export interface Setup {
  /** Pipeline: groups per step, how far ahead groups start, and when rollout receives new weights. */
  pipeline: Schedule;
  devices: number;
  /** Number of devices that only generate, while the others only train; 0 = every device does both. */
  rolloutDevices: number;
  /** Number of sequences that a device decodes at the same time. */
  maxNumSeqs: number;
  steps: number;
  /** Number of mini-batches per training step. */
  miniBatches: number;
  /** The room whose workers are the devices that generate; undefined = no room. */
  room?: Room;
}

export interface SimulatedStep {
  seconds: number;
  /** Shares of the step in which the trainer and the rollouter waited, as verl's `trainer/idle_ratio` and `rollouter/idle_ratio`. */
  idleShare: { trainer: number; rollouter: number };
}

/** Result of a simulation. */
export interface Simulated {
  /** Simulated seconds of all steps together. */
  seconds: number;
  /** Mean of the simulated seconds per step. */
  stepSeconds: number;
  /** Share of the time in which the devices that generate, and those that train, were idle. */
  idleShare: { rollout: number; trainer: number };
  /** Number of trained groups by their staleness: entry i counts groups that started i weight syncs before they were trained on. */
  staleness: number[];
  /** Number of groups that were dropped because they were too old. */
  dropped: number;
  steps: SimulatedStep[];
}

/** Simulates a setup. Throws RangeError if the setup is impossible. */
export function simulate(work: Workload, setup: Setup): Simulated {
  const { devices, rolloutDevices, room } = setup;
  if (!(devices >= 1) || rolloutDevices < 0 || (rolloutDevices > 0 && rolloutDevices >= devices))
    throw new RangeError(`${rolloutDevices} of ${devices} devices cannot decode alone: one at least has to train.`);
  if (room && rolloutDevices === 0)
    throw new RangeError('A room has workers: one device at least has to decode alone.');
  return new Simulation(work, setup).run();
}

class Simulation {
  readonly #work: Workload;
  readonly #setup: Setup;
  readonly #clock = new Clock();
  readonly #devices: RolloutDevice[];
  readonly #rollouter: Rollouter;
  readonly #trainers: number;
  readonly #isShared: boolean;
  #trainedSeconds = 0;
  /** Simulated seconds of the previous mini-batch. */
  #lastSeconds = 0;
  readonly #staleness: number[] = [];
  readonly #steps: SimulatedStep[] = [];

  constructor(work: Workload, setup: Setup) {
    const { devices: count, rolloutDevices, maxNumSeqs, pipeline, steps, room } = setup;
    [this.#work, this.#setup, this.#isShared] = [work, setup, rolloutDevices === 0];
    this.#trainers = count - rolloutDevices;
    const devices = Array.from(
      { length: this.#isShared ? count : rolloutDevices },
      () => new RolloutDevice(this.#clock, work.decode, maxNumSeqs),
    );
    this.#devices = devices;
    this.#rollouter = new Rollouter(this.#clock, work, { devices, pipeline, total: steps * pipeline.stepGroups, room });
  }

  run(): Simulated {
    this.#clock.runUntil(this.#clock.start(this.#train()));
    const seconds = this.#clock.now;
    const decoded = this.#devices.reduce((sum, { busySeconds }) => sum + busySeconds, 0) / this.#devices.length;
    return {
      seconds,
      stepSeconds: seconds / this.#setup.steps,
      idleShare: { rollout: 1 - decoded / seconds, trainer: 1 - this.#trainedSeconds / seconds },
      staleness: Array.from(this.#staleness, (count) => count ?? 0),
      dropped: this.#rollouter.dropped,
      steps: this.#steps,
    };
  }

  *#train(): Process {
    const { steps, pipeline } = this.#setup;
    for (let step = 1; step <= steps; step++) {
      const [began, busy] = [this.#clock.now, this.#rollouter.busySeconds];
      let waited = 0;
      const groups: Group[] = [];
      while (groups.length < pipeline.stepGroups) groups.push(yield* this.#rollouter.take());
      for (const { version } of groups) this.#count(this.#rollouter.version - version);
      waited += this.#clock.now - began;
      yield* this.#update(groups);
      if (step % pipeline.syncSteps === 0 || step === steps) {
        const trained = this.#clock.now;
        if (!pipeline.partial) yield* this.#rollouter.finish();
        waited += this.#clock.now - trained;
        yield* this.#sync();
      }
      const seconds = this.#clock.now - began;
      const idle = seconds - (this.#rollouter.busySeconds - busy);
      this.#steps.push({ seconds, idleShare: { trainer: waited / seconds, rollouter: idle / seconds } });
    }
  }

  *#update(groups: readonly Group[]): Process {
    const seconds = groups.reduce((sum, { trainSeconds }) => sum + trainSeconds, 0) / this.#trainers;
    this.#trainedSeconds += seconds;
    if (!this.#isShared) return yield seconds;
    const { miniBatches } = this.#setup;
    for (let i = 0; i < miniBatches; i++) {
      yield* this.#giveWay();
      this.#hold(true);
      this.#lastSeconds = seconds / miniBatches;
      yield this.#lastSeconds;
      this.#hold(false);
    }
  }

  /** Waits until decoding is idle, but at most as long as the previous mini-batch took, like src/grpo/pipeline/givingWay.ts. */
  *#giveWay(): Process {
    const idle = all(this.#devices.map((device) => device.idle()));
    this.#clock.after(this.#lastSeconds, () => idle.happen());
    yield idle;
  }

  *#sync(): Generator<number | Signal, void, void> {
    this.#hold(true);
    yield this.#work.syncSeconds;
    this.#hold(false);
    this.#rollouter.synced();
  }

  #hold(isHeld: boolean): void {
    for (const device of this.#devices) device.isHeld = isHeld;
  }

  #count(stale: number): void {
    this.#staleness[stale] = (this.#staleness[stale] ?? 0) + 1;
  }
}
