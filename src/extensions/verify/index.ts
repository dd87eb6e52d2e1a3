/**
 * Checks that this adapter computes correctly, against float64 references. Used by `webgrpo verify`; tests use the references
 * (`reference/`), too. The library exports only `checkPolicyLoss.ts`.
 */

export { kernelTexts } from './kernelText.ts';
export { verifyAdapter } from './model.ts';
export { parseCases, verifyCases } from './verlCases.ts';
