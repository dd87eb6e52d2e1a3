/** A line for a model that comes from another server: which file, how much of it, and a bar. */

import { download } from '../state/page.ts';

export function Download() {
  if (!download.value) return null;
  const { file, received, total } = download.value;
  return (
    <div class="download">
      <span class="download-text">
        {`${file}: ${mib(received)}${total === undefined ? '' : ` of ${mib(total)}`} MiB`}
      </span>
      {/* Without a value the bar says that something goes on. */}
      <progress
        aria-label="Model download"
        value={total === undefined ? undefined : total > 0 ? received / total : 1}
      />
    </div>
  );
}

const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);
