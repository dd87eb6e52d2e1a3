/** Deliberate breaks for scripts/mutations.mjs: a line of the code, what it becomes, and the test files that must see it. */

/**
 * @typedef {object} Break
 * @property {string} file
 * @property {string} find stands exactly once in the file
 * @property {string} replace
 */

/**
 * @typedef {Break & { name: string, tests: string[], formerly?: Break }} Mutation `formerly`: where the same line stood in
 * older commits
 */

const gpu = (/** @type {string[]} */ ...names) => names.map((name) => `test/gpu/${name}.test.ts`);
const unit = (/** @type {string[]} */ ...names) => names.map((name) => `test/unit/${name}.test.ts`);

/** @type {Mutation[]} */
export const MUTATIONS = [
  {
    name: 'kernel: a norm without its eps',
    file: 'kernels/rmsnorm.wgsl',
    find: 'inverseSqrt(sum / f32(params.C) + params.eps)',
    replace: 'inverseSqrt(sum / f32(params.C))',
    tests: gpu('rmsnorm'),
  },
  {
    name: 'kernel: the mass before a token without its neighbour',
    file: 'kernels/head_cdf.wgsl',
    find: 'for (var j = owner * span; j < token; j++)',
    replace: 'for (var j = owner * span + 1u; j < token; j++)',
    tests: gpu('head_cdf'),
  },
  {
    name: "verification: a sample's draws at the place after their own",
    file: 'src/grpo/verification/draws.ts',
    find: 'uniformAt(key, promptIds.length + t)',
    replace: 'uniformAt(key, promptIds.length + t + 1)',
    tests: [...unit('verification'), ...gpu('verification')],
  },
  {
    name: 'verification: a mask that nobody compares',
    file: 'src/grpo/verification/replay.ts',
    find: 'if (drawn >= 0)',
    replace: 'if (drawn > 1e9)',
    tests: gpu('verification'),
  },
  {
    name: 'kernel: the sign in SwiGLU backward',
    file: 'kernels/swiglu_bwd.wgsl',
    find: '(1.0 + gate * (1.0 - s))',
    replace: '(1.0 - gate * (1.0 - s))',
    tests: gpu('swiglu_bwd'),
  },
  {
    name: 'kernel: the sign of RoPE',
    file: 'kernels/rope_kv.wgsl',
    find: 'q[dst] = Act(a * c - b * s);',
    replace: 'q[dst] = Act(a * c + b * s);',
    tests: gpu('rope_kv'),
  },
  {
    name: 'kernel: attention reads the wrong key head',
    file: 'kernels/attention.wgsl',
    find: 'h / (params.H / params.K) * D',
    replace: 'h % params.K * D',
    tests: gpu('attention'),
  },
  {
    name: 'kernel: the last row of a token in the embedding gradient',
    file: 'kernels/embed_bwd.wgsl',
    find: 'r < start[u + 1u]',
    replace: 'r + 1u < start[u + 1u]',
    tests: gpu('embed_bwd'),
  },
  {
    name: 'kernel: entropy read one place off',
    file: 'kernels/head_logprob.wgsl',
    find: 'entropy[e] = stats[r * 2u + 1u];',
    replace: 'entropy[e] = stats[r * 2u];',
    tests: gpu('head_logprob'),
  },
  {
    name: 'kernel: eps of AdamW under the root',
    file: 'kernels/adamw.wgsl',
    find: '(sqrt(square) / params.correction2 + params.eps)',
    replace: '(sqrt(square + params.eps) / params.correction2)',
    tests: gpu('adamw'),
  },
  {
    name: 'AdamW: bias correction one step off',
    file: 'src/gpu/ops/adamw.ts',
    find: 'const correction1 = 1 - beta1 ** t;',
    replace: 'const correction1 = 1 - beta1 ** (t + 1);',
    tests: gpu('adamw'),
  },
  {
    name: 'kernel: small gradients are scaled up to the clip norm',
    file: 'kernels/grad_clip.wgsl',
    find: 'scale = min(1.0, params.maxNorm / (norm + 1e-6));',
    replace: 'scale = params.maxNorm / (norm + 1e-6);',
    tests: gpu('grad_clip', 'adamw'),
  },
  {
    name: 'sampler: top-k keeps one more',
    file: 'kernels/sample.wgsl',
    find: 'partU[0] >= topK',
    replace: 'partU[0] > topK',
    tests: gpu('sample'),
  },
  {
    name: 'sampler: the fourth stop token does not stop',
    file: 'kernels/sample.wgsl',
    find: 's < 4u; s++) { stopped',
    replace: 's < 3u; s++) { stopped',
    tests: gpu('sample'),
  },
  {
    name: 'guide: words of a mask row are too few',
    file: 'kernels/mask_logits.wgsl',
    find: '((params.V + 31u) / 32u)',
    replace: '(params.V / 32u)',
    tests: gpu('mask_logits'),
  },
  {
    name: 'loss: the sign of the policy gradient',
    file: 'src/grpo/losses/vanilla.ts',
    find: '!passes ? 0 : -a * ratio',
    replace: '!passes ? 0 : a * ratio',
    tests: unit('losses'),
  },
  {
    name: 'loss: the sign of the KL gradient (k3)',
    file: 'src/grpo/losses/kl.ts',
    find: 'value: Math.expm1(x) - x, grad: -Math.expm1(x)',
    replace: 'value: Math.expm1(x) - x, grad: Math.expm1(x)',
    tests: unit('kl'),
  },
  {
    name: 'advantage: standard deviation with n instead of n - 1',
    file: 'src/grpo/advantages/outcome.ts',
    find: '/ (values.length - 1)',
    replace: '/ values.length',
    tests: unit('advantages'),
  },
  {
    name: 'loss: token-mean divides by sequences',
    file: 'src/grpo/losses/aggregate.ts',
    find: 'return 1 / tokens;',
    replace: 'return 1 / sequences;',
    tests: unit('aggregate'),
  },
  {
    name: 'packing: a token is predicted from its own row',
    file: 'src/model/packing.ts',
    find: 'prompt.end - 1 : start + t - 1',
    replace: 'prompt.end - 1 : start + t',
    tests: unit('packing'),
  },
  {
    name: 'mask: tool output is trained on',
    file: 'src/rollout/agent/sample.ts',
    find: 'this.#mask.push(generation ? 1 : 0);',
    replace: 'this.#mask.push(generation ? 1 : 1);',
    tests: unit('agentLoop'),
  },
  {
    name: 'checkpoint: tensors begin where the header text ends, not its padding',
    file: 'src/model/checkpoint/safetensors.ts',
    find: 'let position = 8 + headerLength;',
    replace: 'let position = 8 + text.length;',
    tests: unit('safetensors'),
  },
  {
    name: 'checkpoint: bfloat16 rounds ties up',
    file: 'src/model/checkpoint/safetensors.ts',
    find: '(bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16',
    replace: '(bits + 0x8000) >>> 16',
    tests: unit('safetensors', 'saveDtype'),
  },
  {
    name: 'config: a sequence may be longer than a batch',
    file: 'src/grpo/config/rules.ts',
    find: 'const longest = data.maxPromptLength + data.maxResponseLength;',
    replace: 'const longest = data.maxResponseLength;',
    tests: unit('config'),
  },
  {
    name: 'server: the shared prefix ends one key early',
    file: 'src/rollout/server/prefill.ts',
    find: '[prefixStart, prefixStart + promptLength, ownStart, ownStart + t + 1]',
    replace: '[prefixStart, prefixStart + promptLength - 1, ownStart, ownStart + t + 1]',
    tests: gpu('rollout'),
  },
  {
    name: 'server: a returning context skips its last token',
    file: 'src/rollout/server/scheduler.ts',
    find: '.length - 1)));',
    replace: '.length)));',
    formerly: {
      file: 'src/rollout/server/admission.ts',
      find: 'job.next = Math.min(known, Math.max(0, own.length - 1));',
      replace: 'job.next = Math.min(known, own.length);',
    },
    tests: [...unit('rolloutServer'), ...gpu('rolloutPreemption')],
  },
  {
    name: 'server: the latest request waits in front',
    file: 'src/rollout/server/scheduler.ts',
    find: '(other) => other.arrival > job.arrival',
    replace: '(other) => other.arrival < job.arrival',
    formerly: {
      file: 'src/rollout/server/admission.ts',
      find: 's.waiting[at - 1].arrival > job.arrival',
      replace: 's.waiting[at - 1].arrival < job.arrival',
    },
    tests: unit('rolloutServer'),
  },
  {
    name: 'cache: the prefix used last is dropped first',
    file: 'src/rollout/server/kvCache.ts',
    find: 'entry[1].lastUsed < oldest[1].lastUsed',
    replace: 'entry[1].lastUsed > oldest[1].lastUsed',
    tests: unit('kvCache'),
  },
  {
    name: 'stop strings: the least length counts one more',
    file: 'src/rollout/decode/stopStrings.ts',
    find: 'return this.#tokensBefore > 0 ? undefined : found;',
    replace: 'return this.#tokensBefore >= 0 ? undefined : found;',
    tests: unit('stopStrings'),
  },
];
