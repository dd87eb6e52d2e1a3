/** Learning-rate schedules: a factor of the peak rate by optimizer step. */

export interface LrSchedule {
  /** 'constant', or a half cosine from the peak down to minLrRatio (verl's lr_scheduler_type). */
  lrSchedulerType: 'constant' | 'cosine';
  /** Optimizer steps of linear rise from 0 before the peak. */
  lrWarmupSteps: number;
  /** Optimizer steps of the whole run; cosine needs it. */
  totalTrainingSteps: number;
  /** Share of the peak that cosine ends on. */
  minLrRatio: number;
  /** Half periods of cosine: 0.5 falls once from peak to floor. */
  numCycles: number;
}

/**
 * Factor of the peak learning rate at optimizer step 0, 1, 2, ... The warm-up's first step already moves: (step + 1) /
 * warm-up, so no update is wasted.
 */
export function lrFactor(schedule: LrSchedule, step: number): number {
  const { lrWarmupSteps, totalTrainingSteps, minLrRatio } = schedule;
  if (step < lrWarmupSteps) return (step + 1) / lrWarmupSteps;
  if (schedule.lrSchedulerType === 'constant') return 1;
  if (totalTrainingSteps <= lrWarmupSteps) {
    throw new RangeError(
      `A cosine schedule needs totalTrainingSteps above lrWarmupSteps (${lrWarmupSteps}), but it is ${totalTrainingSteps}.`,
    );
  }
  const progress = Math.min((step - lrWarmupSteps) / (totalTrainingSteps - lrWarmupSteps), 1);
  const cosine = 0.5 * (1 + Math.cos(2 * Math.PI * schedule.numCycles * progress));
  return minLrRatio + (1 - minLrRatio) * Math.max(cosine, 0);
}
