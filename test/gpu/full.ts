/** True in `npm test -- --full`. Works in browsers too: they have no `process`, so vitest.config.ts passes the value. */
export const isFull = import.meta.env['FULL_TESTS'] === '1';
