/** Waits until requests have sampled a number of tokens, independent of a clock. */
export function hearing(): { heard: (tokens: number) => Promise<void>; onTokens: (ids: readonly number[]) => void } {
  let count = 0;
  let awaited: { tokens: number; resolve: () => void }[] = [];
  const tell = () => {
    for (const { tokens, resolve } of awaited) if (count >= tokens) resolve();
    awaited = awaited.filter(({ tokens }) => tokens > count);
  };
  return {
    heard: (tokens) =>
      new Promise((resolve) => {
        awaited.push({ tokens, resolve });
        tell();
      }),
    onTokens: (ids) => {
      count += ids.length;
      tell();
    },
  };
}
