import type { TrainerEngine } from 'webgrpo';
import { Learner } from 'webgrpo/learner';

/** Resumes with another engine, bit for bit. The state is plain data, which can also be stored in IndexedDB. */
export async function moveTo(engine: TrainerEngine, learner: Learner) {
  const state = structuredClone(await learner.saveState());
  const next = new Learner({ engine, config: learner.config });
  await next.loadState(state);
  return next;
}
