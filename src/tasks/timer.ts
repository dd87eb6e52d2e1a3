/** Largest delay of a timer, in milliseconds: 25 days. JavaScript's timers fire at once if the delay is longer. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Calls `onEnd` after a time limit in milliseconds. Returns its timer; undefined if the limit is longer than any timer, so that none ends. */
export const startTimer = (onEnd: () => void, ms: number): ReturnType<typeof setTimeout> | undefined =>
  ms > LONGEST_TIMER_MS ? undefined : setTimeout(onEnd, ms);
