import { expect, test } from 'vitest';
import { restLoop } from '../../src/cli/dawn.ts';

const turns = async (n: number) => {
  for (let i = 0; i < n; i++) await new Promise((resolve) => setImmediate(resolve));
};

test('one rest per turn of the event loop while a result is awaited, however many are requested, and none afterwards', async () => {
  let rests = 0;
  const loop = restLoop(() => rests++);
  for (let i = 0; i < 50; i++) {
    loop.begin();
    await turns(1);
    loop.end(); // and the next request follows in the same turn of the event loop
  }
  loop.begin();
  await turns(1);
  rests = 0;
  await turns(10);
  expect(rests).toBe(10);
  loop.end();
  await turns(2);
  rests = 0;
  await turns(5);
  expect(rests).toBe(0);
});
