import { InputError } from '../errors.ts';

/**
 * Returns a function that runs at most `most` async calls at the same time, in order of arrival. Throws InputError unless `most` is at
 * least 1.
 */
export function limiter(most: number): <T>(work: () => Promise<T>) => Promise<T> {
  if (!(most >= 1)) throw new InputError(`A concurrency limit is ${most}; allowed: 1 or more. Change it.`);
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (running >= most) await new Promise<void>((resolve) => waiting.push(resolve));
    else running++;
    try {
      return await work();
    } finally {
      // The slot is passed directly to the next waiting call.
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}
