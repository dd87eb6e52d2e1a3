/** Runs axe, the accessibility checker, on a page in each colour scheme: light, dark and forced colours. */

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type Axe from 'axe-core';
import { expect, type Page } from '@playwright/test';
import { isFull } from './demo.ts';

export const COLOURS = {
  light: { colorScheme: 'light', forcedColors: 'none' },
  dark: { colorScheme: 'dark', forcedColors: 'none' },
  forced: { colorScheme: 'light', forcedColors: 'active' },
} as const;

/** Rules of axe that depend on colours. Other rules give the same result in all colour schemes. */
const RULES_OF_COLOUR = ['color-contrast', 'link-in-text-block'];

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Expects no violation in light colours; with --full, also in dark and in forced ones. @param state name of the state in failure messages */
export async function expectNoViolations(
  page: Page,
  state: string,
  within: Partial<typeof COLOURS> = isFull ? COLOURS : { light: COLOURS.light },
): Promise<void> {
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(AXE);
  for (const [colours, media] of Object.entries(within)) {
    await page.emulateMedia(media);
    const runOnly = colours !== 'light' && !isFull ? RULES_OF_COLOUR : undefined;
    const found = await page.evaluate(async (runOnly) => {
      const { axe } = globalThis as unknown as { axe: typeof Axe };
      // Without resultTypes, axe also describes every element that passes a rule.
      const { violations } = await axe.run({ resultTypes: ['violations'], ...(runOnly && { runOnly }) });
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
    }, runOnly);
    expect(found, `${state}, ${colours}`).toEqual([]);
  }
  await page.emulateMedia(COLOURS.light);
}
