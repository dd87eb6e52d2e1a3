/**
 * `webgrpo/playwright`: a Playwright `test` whose pages have WebGPU in headless Chromium, a function that trains in such a page, and a
 * matcher for its result. Needs the package `@playwright/test`, which no other entry loads.
 */

import './engineParts.ts';
import './trainerParts.ts';
import { expect as plainExpect, test as plainTest } from '@playwright/test';
import { webGpuLaunchOptions } from './cli/chromium.mjs';
import { type TrainedRun, trainInPage, type TrainInPageOptions } from './cli/chromium/trainInPage.ts';
import type { TrainConfigInput } from './grpo/config/input.ts';
import { judgeCourse, type Learns } from './report/course.ts';

export { webGpuLaunchOptions };
export type { Learns, TrainConfigInput, TrainedRun, TrainInPageOptions };

/** Fixtures that this `test` has in addition to Playwright's. */
export interface WebGpuFixtures {
  /**
   * Trains in `page` until the last step. During the run, the page shows nothing else. Takes a config as an object, the path of a YAML
   * file, or the path of a run folder, which is resumed. Rejects with the error of the run.
   */
  trainInPage(config: TrainConfigInput | string, options?: TrainInPageOptions): Promise<TrainedRun>;
}

/** Playwright's `test` with WebGPU in headless Chromium, and with the fixture `trainInPage`. */
export const test = plainTest.extend<WebGpuFixtures>({
  launchOptions: [
    async ({ launchOptions, browserName }, use, { project }) => {
      const { args, ...browser } = webGpuLaunchOptions();
      // The channel is read from the project's settings, because Playwright's fixture `channel` depends on `launchOptions`.
      const isChosen = launchOptions.executablePath ?? launchOptions.channel ?? project.use.channel;
      const own = { ...(!isChosen && browser), ...launchOptions, args: [...args, ...(launchOptions.args ?? [])] };
      await use(browserName === 'chromium' ? own : launchOptions);
    },
    { scope: 'worker' },
  ],
  trainInPage: async ({ page }, use, info) => {
    await use((config, options) => trainInPage(page, info, config, options));
  },
});

/** Playwright's `expect` with `toLearn`. */
export const expect = plainExpect.extend({
  /**
   * Passes if a metric of a run has risen from its first value, and the mean of its last values is at least `atLeast`.
   * The message shows the course of the metric.
   */
  toLearn({ history }: Pick<TrainedRun, 'history'>, asked: Learns) {
    const { pass, reason } = judgeCourse(history, asked, this.isNot);
    return { pass, message: () => reason };
  },
});
