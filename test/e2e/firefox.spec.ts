/** Tests the page in a stock Firefox, if one is installed (FIREFOX_PATH, or firefox-esr or firefox in PATH). */

import { spawnSync } from 'node:child_process';
import { expect, test } from '@playwright/test';
import { type Firefox, startFirefox } from './firefox.ts';

const command = [process.env['FIREFOX_PATH'], 'firefox-esr', 'firefox'].find(
  (name) => name !== undefined && spawnSync(name, ['--version']).status === 0,
);

let firefox: Firefox | undefined;
test.afterAll(() => firefox?.close());

test('the page trains in Firefox with WebGPU, and otherwise says what is missing', async ({ baseURL }) => {
  const missing = 'No Firefox is installed (FIREFOX_PATH, or firefox-esr or firefox in PATH): nothing is tested in it.';
  if (command === undefined) console.warn(missing);
  test.skip(command === undefined, missing);
  firefox = await startFirefox(command!);
  const { open, evaluate } = firefox;
  await open(`${baseURL}/`);
  const state = () => evaluate('document.body.dataset.state');
  await expect
    .poll(() =>
      evaluate(
        `document.body.dataset.state === 'no-gpu' || document.getElementById('start')?.ariaDisabled === 'false'`,
      ),
    )
    .toBe(true);
  expect(await evaluate('document.querySelectorAll(".chart canvas").length')).toBe(6);
  expect(await evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
  // Focusing a term opens its explanation.
  await evaluate('document.querySelector("#charts .term").focus()');
  expect(await evaluate('document.querySelector("#charts .meaning").matches(":popover-open")')).toBe(true);
  if ((await state()) === 'no-gpu') {
    expect(await evaluate('document.body.innerText')).toMatch(
      /Training needs WebGPU|This browser has WebGPU but cannot use a GPU/,
    );
    return;
  }
  await evaluate('document.getElementById("start").click()');
  await expect.poll(state).toBe('running');
});
