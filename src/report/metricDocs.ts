/**
 * Texts on the metrics that the page, a lesson or report.html draws: what each means, and how it develops in a healthy run.
 * docs/reference/metrics.md has the same texts, followed by formulas. test/unit/metricNames.test.ts compares them.
 */

export interface MetricDoc {
  /** Meaning of the metric, as a noun phrase without a full stop. */
  means: string;
  /** One or two sentences. */
  healthy: string;
}

/** Texts of metrics, by the name that docs/reference/metrics.md uses. */
export const METRIC_DOCS: Readonly<Record<string, MetricDoc>> = {
  'critic/score/mean': {
    means: 'mean reward of the samples that the step learned from',
    healthy: 'The reward rises, with jumps: each step has other problems.',
  },
  'val-core/<set>/acc/mean@<n>': {
    means: 'share of held-out problems solved by a sampled answer (pass@1)',
    healthy: 'pass@1 rises with the reward. If only the reward rises, read the samples.',
  },
  'val-core/<set>/acc/greedy': {
    means: 'share of held-out problems solved by greedy decoding',
    healthy: 'Greedy accuracy rises, often more than pass@1.',
  },
  'critic/acc/mean': {
    means: 'share of right samples, whatever the reward pays',
    healthy: 'The share of right samples rises with the reward. If it falls, the reward pays for something else.',
  },
  frac_reward_zero_std: {
    means: 'share of silent groups, whose scores are all equal',
    healthy:
      'The share of silent groups is low at first. Near 1, problems are too hard or too easy, and nothing is learned.',
  },
  'actor/entropy': {
    means: 'how uncertain the model is about its next token, in nats',
    healthy:
      'In a sound run entropy falls slowly. At 0 the samples of a group are all alike, and nothing is left to compare.',
  },
  'actor/ppo_kl': {
    means: 'how far the updates of a step moved the policy from the one that sampled, in nats per token',
    healthy: 'The KL stays near 0. A spike is a step that went too far.',
  },
  'actor/kl_loss': {
    means: 'distance from the start model, in nats',
    healthy: 'The distance grows slowly.',
  },
  'actor/grad_norm': {
    means: 'norm of the gradient before clipping: how strongly a step pulls at the weights',
    healthy: 'The norm is steady, and falls when little is left to learn. Sudden growth precedes a collapse.',
  },
  'actor/pg_loss': {
    means: 'policy loss, whose gradient the optimizer follows',
    healthy: 'The loss can be anything near 0. Do not judge a run by it: read the reward.',
  },
  'response_length/mean': {
    means: 'mean number of tokens after the prompt, tool outputs included',
    healthy: 'The length depends on the task. At its limit, answers are truncated.',
  },
  'stop/max_tokens': {
    means: 'share of samples that were truncated at their limit of tokens; absent if none',
    healthy:
      'The share of truncated samples is 0 or low. Truncated answers get no reward, so the model learns to write less.',
  },
  'training/rollout_probs_diff_max': {
    means: 'largest difference of probabilities that sampler and trainer computed for the same token',
    healthy: 'The difference is 0 on policy on one adapter. Otherwise it shows stale or imprecise weights.',
  },
  'tool_call_counts/error_rate': {
    means: 'failed tool calls over all calls; absent without calls',
    healthy: 'The error rate is near 0. From 0.9 in three steps a warning is printed.',
  },
};

const NAMES = Object.keys(METRIC_DOCS).map(
  (name) => [name, new RegExp(`^${name.replace(/<\w+>/g, '[^/]+')}$`)] as const,
);

/** Returns the texts of a metric of a run. Undefined if the metric has no texts. */
export const metricDoc = (metric: string): MetricDoc | undefined =>
  METRIC_DOCS[NAMES.find(([, pattern]) => pattern.test(metric))?.[0] ?? ''];

/** Returns both texts of a metric as sentences. Throws TypeError for a metric without texts. */
export function metricHint(metric: string): string {
  const doc = metricDoc(metric);
  if (!doc) throw new TypeError(`METRIC_DOCS has no entry for "${metric}". Add one.`);
  return `${doc.means[0].toUpperCase()}${doc.means.slice(1)}. ${doc.healthy}`;
}
