// The same run in Node: install webgrpo (its tarball: README) and webgpu, then node twin.js 16 cispo
import { createLocalEngine, engineSizes } from 'webgrpo';
import { reverseText } from 'webgrpo/checkpoints';
import { installWebGpu, readCheckpoint } from 'webgrpo/node';
import { config, train } from './stale.js';

const [delay = '4', loss = 'grpo'] = process.argv.slice(2);
await installWebGpu();
const engine = await createLocalEngine({ ...engineSizes(config), ...(await readCheckpoint(reverseText)) });
await train({
  ...{ engine, delay: Number(delay), loss },
  show: ({ step, rewards }) => console.log(step, (rewards.reduce((sum, r) => sum + r, 0) / rewards.length).toFixed(3)),
});
engine.destroy();
