/** Ctrl-C: the first asks for a clean stop, the second ends the process. */

/** Calls `stop` on the first SIGINT or SIGTERM. Returns what takes the handler away again. */
export function onInterrupt(stop: () => void): () => void {
  let asked = false;
  const handler = () => {
    if (asked) process.exit(1);
    asked = true;
    stop();
  };
  process.on('SIGINT', handler);
  process.on('SIGTERM', handler);
  return () => {
    process.off('SIGINT', handler);
    process.off('SIGTERM', handler);
  };
}
