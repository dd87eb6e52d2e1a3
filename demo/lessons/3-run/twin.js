// The same run in Node: install webgrpo (its tarball: README) and webgpu, then node twin.js
import { createLocalEngine, engineSizes } from 'webgrpo';
import { reverseText } from 'webgrpo/checkpoints';
import { installWebGpu, readCheckpoint } from 'webgrpo/node';
import { config, train } from './run.js';

await installWebGpu();
const engine = await createLocalEngine({ ...engineSizes(config), ...(await readCheckpoint(reverseText)) });
await train({
  engine,
  show: ({ step, rewards }) => console.log(step, (rewards.reduce((sum, r) => sum + r, 0) / rewards.length).toFixed(3)),
});
engine.destroy();
