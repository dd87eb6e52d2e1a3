/** Runs axe in the colour schemes of a page. */

import { AxeBuilder } from '@axe-core/playwright';
import { expect, type Page } from '@playwright/test';

export const COLOURS = {
  light: { colorScheme: 'light', forcedColors: 'none' },
  dark: { colorScheme: 'dark', forcedColors: 'none' },
  forced: { colorScheme: 'light', forcedColors: 'active' },
} as const;

/** Rules that depend on colours. The rest of the page is the same in all schemes. */
const RULES_OF_COLOUR = ['color-contrast', 'link-in-text-block'];

/** Expects no violation in light, dark or forced colours. @param state name of the state in failure messages */
export async function expectNoViolations(
  page: Page,
  state: string,
  within: Partial<typeof COLOURS> = COLOURS,
): Promise<void> {
  for (const [colours, media] of Object.entries(within)) {
    await page.emulateMedia(media);
    // Otherwise axe describes every element that passes a rule too.
    const axe = new AxeBuilder({ page }).setLegacyMode().options({ resultTypes: ['violations'] });
    if (colours !== 'light' && process.env['FULL_TESTS'] !== '1') axe.withRules(RULES_OF_COLOUR);
    const { violations } = await axe.analyze();
    const found = violations.map(
      ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`,
    );
    expect(found, `${state}, ${colours}`).toEqual([]);
  }
  await page.emulateMedia(COLOURS.light);
}
