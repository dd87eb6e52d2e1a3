/** Opens lessons and solves their exercises by keyboard. */

import { expect, type Page } from '@playwright/test';
import type { Exercise } from '../../demo/lessons/kit/checks.ts';
import { expectNoViolations } from './axe.ts';
import { expectNoSideScroll, isFull } from './demo.ts';

export const figure = (page: Page, number: string) => page.locator(`[data-figure="${number}"]`);
export const exercise = (page: Page, id: string) => page.getByRole('region', { name: `Exercise ${id}` });

/**
 * Opens a page of the lessons and waits for `part`. Returns a list to which the page's errors and its requests to other servers are added.
 */
export async function openLessonAt(page: Page, address: string, part = 'h1'): Promise<string[]> {
  const wrong: string[] = [];
  page.on('pageerror', (error) => wrong.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') wrong.push(message.text());
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (!/^(data|blob):$/.test(url.protocol) && url.hostname !== '127.0.0.1') wrong.push(url.href);
  });
  await page.goto(address);
  await expect(page.locator(part).first()).toBeVisible();
  return wrong;
}

/** Expects that the page does not scroll sideways and that axe finds nothing, also with text of twice the size. */
export async function expectNarrow(page: Page): Promise<void> {
  await expectNoSideScroll(page);
  await expectNoViolations(page, 'narrow');
  await page.evaluate(() => {
    const all = [...document.body.querySelectorAll<HTMLElement>('*:not(svg *)')];
    const sizes = all.map((one) => parseFloat(getComputedStyle(one).fontSize));
    all.forEach((one, i) => (one.style.fontSize = `${2 * sizes[i]}px`));
  });
  await expectNoSideScroll(page);
  await expectNoViolations(page, 'narrow, larger text');
}

/** Replaces the text of a code cell by keyboard. */
export async function write(page: Page, place: ReturnType<typeof figure>, code: string): Promise<void> {
  await place.scrollIntoViewIfNeeded(); // the editor is loaded when it comes near the screen
  await place.locator('.cm-content').focus();
  await page.keyboard.press('ControlOrMeta+a');
  await page.keyboard.insertText(code);
}

/**
 * Enters the right answer of an exercise by keyboard. In code exercises it first enters a wrong answer, and expects the sentence about it.
 */
export async function solve(page: Page, one: Exercise): Promise<void> {
  const place = exercise(page, one.id);
  const check = () => place.getByRole('button', { name: 'Check' }).press('Enter');
  if (one.kind === 'code' || one.kind === 'loop' || one.kind === 'kernel') {
    await write(page, place, one.wrong[0].given);
    await page.keyboard.press('Control+Enter');
    await expect(place.locator('.result')).toContainText(one.wrong[0].says);
    await expect(place.locator('.hint')).toBeVisible();
    await write(page, place, one.answer);
    await page.keyboard.press('Control+Enter');
  } else if (one.kind === 'ticks') {
    for (const id of one.answer)
      await place.getByLabel(one.options.find((option) => option.id === id)!.label, { exact: true }).press('Space');
    await check();
  } else if (one.kind === 'choice') {
    await place.getByLabel(one.options.find(({ id }) => id === one.answer)!.label, { exact: true }).press('Space');
    await check();
  } else if (one.kind === 'match') {
    for (const [k, item] of one.items.entries()) await place.getByLabel(item).selectOption(one.answer[k]);
    await check();
  } else {
    for (const [f, field] of one.fields.entries()) await place.getByLabel(field).fill(`${one.answer[f]}`);
    await place.getByLabel(one.fields[0]).press('Enter');
  }
  await expect(place.locator('.result')).toHaveText(`Right. ${one.why}`);
}

/** Solves the exercises of a lesson by keyboard, without --full one of them, and expects their count. Loops take too long for every day. */
export async function solveSome(page: Page, all: readonly Exercise[]): Promise<void> {
  const one = all.find(({ kind }) => kind === 'code') ?? all.find(({ kind }) => kind !== 'loop')!;
  const some = isFull ? all : [one];
  for (const exercise of some) await solve(page, exercise);
  await expect(page.locator('[data-progress]')).toContainText(`${some.length} of ${all.length} exercises solved`);
}
