/** Progress of what a run waits for before its first step: a download, or the training of a start model. */

import { warmStart } from '../engine/startModel.ts';
import { download } from '../state/page.ts';

/** Shows a download's progress. */
export const Download = () => (
  <>
    {download.value && <Downloading {...download.value} />}
    {warmStart.value && <Imitating {...warmStart.value} />}
  </>
);

function Downloading({ file, received, total }: NonNullable<typeof download.value>) {
  const of = total === undefined ? '' : ` of ${mib(total)}`;
  // Without a value, the bar is indeterminate and animated.
  const share = total === undefined ? undefined : total > 0 ? received / total : 1;
  return <Bar text={`${file}: ${mib(received)}${of} MiB`} label="Model download" share={share} />;
}

const Imitating = ({ step, total }: NonNullable<typeof warmStart.value>) => (
  <Bar text={`Warm start on example answers: step ${step} of ${total}`} label="Warm start" share={step / total} />
);

const Bar = ({ text, label, share }: { text: string; label: string; share: number | undefined }) => (
  <div class="download">
    <span class="download-text">{text}</span>
    <progress aria-label={label} value={share} />
  </div>
);

const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);
