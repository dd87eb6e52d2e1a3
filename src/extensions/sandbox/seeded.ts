/** First time that a sandbox's clock returns, in milliseconds: 1 January 2026. Each read of the clock adds one. */
const CLOCK_START = Date.UTC(2026, 0, 1);

/**
 * Runs first inside a sandbox, and makes Math.random and Date depend only on a seed. Returns a function that resets both to another seed.
 */
export const SEEDED = `((seed) => {
  let state;
  let now;
  Math.random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const Clock = Date;
  const construct = Reflect.construct;
  globalThis.Date = function Date(...given) {
    if (new.target === undefined) return construct(Clock, [now++]).toString();
    return construct(Clock, given.length > 0 ? given : [now++], new.target);
  };
  Object.defineProperties(globalThis.Date, {
    prototype: { value: Clock.prototype, writable: false },
    length: { value: 7 },
    now: { value: () => now++, writable: true, configurable: true },
    parse: { value: Clock.parse, writable: true, configurable: true },
    UTC: { value: Clock.UTC, writable: true, configurable: true },
  });
  Clock.prototype.constructor = globalThis.Date;
  const restart = (to) => {
    state = to;
    now = ${CLOCK_START};
  };
  restart(seed);
  return restart;
})`;
