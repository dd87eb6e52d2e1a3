import { registerAgentLoop } from 'webgrpo';

registerAgentLoop('self_check', async (sample) => {
  const first = await sample.generate();
  const stop = first.stop ?? sample.say({ role: 'user', content: 'Are you sure?' });
  return stop ?? (await sample.generate()).stop ?? 'completed';
});
