/** True in `npm test -- --full`; in a browser too, where there is no process (vitest.config.ts hands it over). */
export const isFull = import.meta.env['FULL_TESTS'] === '1';
