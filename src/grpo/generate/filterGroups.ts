/**
 * Dynamic sampling (DAPO, arXiv:2503.14476): groups whose rewards are all equal have no signal and are replaced by new
 * groups.
 */

import type { Sample } from '../update/batch.ts';
import { generateSamples, type GeneratedStep, type SampleSource, type SourceOptions, stepOptions } from './samples.ts';

/**
 * Generates until `trainBatchSize` groups have a signal. Each rejected group allows another problem, up to
 * maxNumGenBatches x trainBatchSize problems in all.
 */
export class FilteredGroups implements SampleSource {
  readonly #options: SourceOptions;

  constructor(options: SourceOptions) {
    this.#options = options;
  }

  async generate(step: number): Promise<GeneratedStep> {
    const { config, engine, problems } = this.#options;
    const { n } = config.rollout;
    const { trainBatchSize } = config.data;
    const { metric, maxNumGenBatches } = config.algorithm.filterGroups;
    const seconds = { tools: 0, reward: 0 };
    const kept: Sample[] = [];
    let last: Sample[] = [];
    let [batches, drawn] = [0, 0];
    const missing = () => trainBatchSize - kept.length / n;
    const credits = () => maxNumGenBatches * trainBatchSize - drawn;
    while (missing() > 0 && credits() > 0) {
      const count = Math.min(missing(), credits());
      const options = { ...stepOptions(this.#options, step), firstGroup: drawn };
      const generated = await generateSamples(await problems.take(count), options);
      await problems.observe(generated.samples);
      seconds.tools += generated.seconds.tools;
      seconds.reward += generated.seconds.reward;
      kept.push(...groupsWithSignal(generated.samples, metric));
      last = [...last, ...generated.samples].slice(-trainBatchSize * n);
      drawn += count;
      batches++;
    }
    const metrics = {
      'training/num_gen_batches': batches,
      'training/num_gen_prompts': drawn,
      'training/evicted_groups': drawn - kept.length / n,
    };
    // If the filter rejects every group, the step trains on the last groups unfiltered rather than on nothing.
    const samples = kept.length > 0 ? kept : last;
    return { samples, seconds, stats: await engine.rollout.takeStats(), metrics };
  }
}

/**
 * Returns the samples of groups whose members do not all have the same `metric`. If no outcome (acc) of a group is
 * known, its scores must differ.
 */
export function groupsWithSignal(samples: Sample[], metric: 'acc' | 'score'): Sample[] {
  const known = (of: 'acc' | 'score') => {
    const values = new Map<number, Set<number>>();
    for (const { group, reward } of samples)
      if (!Number.isNaN(reward[of])) values.set(group, (values.get(group) ?? new Set()).add(reward[of]));
    return values;
  };
  const [values, scores] = [known(metric), known('score')];
  return samples.filter(({ group }) => (values.get(group) ?? scores.get(group) ?? new Set()).size > 1);
}
