/** How far the model that a run starts from is made. */

import { warmStart } from '../../engine/startModel.ts';

export function WarmStart() {
  if (!warmStart.value) return null;
  const { step, total } = warmStart.value;
  return (
    <div class="download">
      <span class="download-text">{`First the model imitates examples: ${step} of ${total} steps`}</span>
      <progress aria-label="Imitation" value={step / total} />
    </div>
  );
}
