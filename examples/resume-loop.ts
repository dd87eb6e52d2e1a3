import type { TrainerEngine } from 'webgrpo';
import { Learner } from 'webgrpo/learner';

/** Goes on with another engine, bit for bit; the state is plain data, which IndexedDB keeps as well. */
export async function moveTo(engine: TrainerEngine, learner: Learner) {
  const state = structuredClone(await learner.saveState());
  const next = new Learner({ engine, config: learner.config });
  await next.loadState(state);
  return next;
}
