import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parseCases, verifyCases } from '../../src/extensions/verify/verlCases.ts';

const GOLDENS = new URL('../../../shared/goldens/policy_losses.json', import.meta.url);

// The goldens are not in the repository. Without the folder ../shared there is nothing to compare with, so the tests are skipped.
test.skipIf(!existsSync(GOLDENS))("verl's own numbers (skipped where ../shared/goldens is absent)", () => {
  const report = verifyCases(parseCases(readFileSync(GOLDENS, 'utf8')));
  expect(report.checked).toBe(report.cases);
  expect(report.cases).toBeGreaterThan(50);
  expect(report.maxError, JSON.stringify(report.worst)).toBeLessThan(1e-6);
});
