import type { Learner, MessageShape, ToolShape } from 'webgrpo/learner';

const add = { name: 'add', parameters: { properties: { a: { type: 'number' }, b: { type: 'number' } } } };
const tools: ToolShape[] = [{ type: 'function', function: add }];

async function episode(learner: Learner, question: string, answer: string) {
  const client = learner.client({ group: question });
  const messages: MessageShape[] = [{ role: 'user', content: question }];
  for (let turn = 0; turn < 4; turn++) {
    const { choices } = await client.chat.completions.create({ messages, tools });
    const { message } = choices[0];
    messages.push(message);
    if (!message.tool_calls) return client.trajectory.reward(message.content?.includes(answer) ? 1 : 0);
    for (const { id, function: called } of message.tool_calls) {
      const { a, b } = JSON.parse(called.arguments) as { a: number; b: number };
      messages.push({ role: 'tool', tool_call_id: id, content: `${a + b}` });
    }
  }
  client.trajectory.reward(0);
}

export async function step(learner: Learner, questions: { question: string; answer: string }[]) {
  const tries = questions.flatMap((one) => Array.from({ length: learner.config.rollout.n }, () => one));
  await Promise.all(tries.map(({ question, answer }) => episode(learner, question, answer)));
  return learner.step({ groups: 'all' });
}
