/**
 * A reporter of Vitest that writes the seconds of each test file, hooks included, to the file FILE_SECONDS. Vitest's JSON has only the time
 * between the first and the last test.
 */

import { writeFileSync } from 'node:fs';

export default class FileSecondsReporter {
  /** @type {Record<string, number>} */
  seconds = {};

  /** @param {import('vitest/node').TestModule} module */
  onTestModuleEnd(module) {
    // Imports are not included: files that share a module graph pay for each other's.
    this.seconds[module.moduleId] = module.diagnostic().duration / 1000;
  }

  onTestRunEnd() {
    if (process.env['FILE_SECONDS']) writeFileSync(process.env['FILE_SECONDS'], JSON.stringify(this.seconds));
  }
}
