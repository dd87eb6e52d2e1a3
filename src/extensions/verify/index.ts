/**
 * Checks that this adapter computes correctly, against float64. Used by `webgrpo verify`, and by the tests, whose references are in
 * `reference/`. The library exports `checkPolicyLoss.ts` alone.
 */

export { kernelTexts } from './kernelText.ts';
export { verifyAdapter } from './model.ts';
export { parseCases, verifyCases } from './verlCases.ts';
