import type { InFlight } from '../generate/samples.ts';
import type { Metrics } from '../metrics.ts';
import type { TrainerEngine } from '../types.ts';
import { bringWeights } from './sharedWeights.ts';

/**
 * Base class for what a sample source does between two steps. By default it keeps no groups and only syncs the weights
 * to rollout. A source that keeps groups overrides the methods it needs.
 */
export class NothingInFlight implements InFlight {
  get inFlightNumbers(): number[] | undefined {
    return undefined;
  }

  ready(_stop: AbortSignal): Promise<boolean> {
    return Promise.resolve(true);
  }

  save(): Promise<unknown> {
    return Promise.resolve(undefined);
  }

  restore(_state: unknown, _to: { inFlightNumbers: readonly number[]; vocabSize: number }): void {}

  pause(): Promise<void> {
    return Promise.resolve();
  }

  resume(step: number, engine: Pick<TrainerEngine, 'rollout' | 'checkpointEngine'>): Promise<Metrics> {
    return bringWeights(engine, step);
  }

  evaluate<T>(run: (onQueued: () => Promise<void>) => Promise<T>): Promise<T> {
    return run(() => Promise.resolve());
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
