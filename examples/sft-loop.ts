import { type Message, sftExample } from 'webgrpo';
import type { Learner } from 'webgrpo/learner';

/** Imitates the assistant's turns (supervised). Returns the mean negative log-likelihood of their tokens, in nats. */
export async function imitate(learner: Learner, conversations: Message[][]) {
  const rows = conversations.map((messages) => {
    const { promptIds, responseIds, mask } = sftExample(learner.engine.tokenizer, messages);
    return { tokens: [...promptIds, ...responseIds], mask: [...promptIds.map(() => 0), ...mask] };
  });
  const { loss } = await learner.forwardBackward(rows, 'cross_entropy', { lossAggMode: 'token-mean' });
  await learner.optimStep({ lr: 1e-3 });
  return loss;
}
