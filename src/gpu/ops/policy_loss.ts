import codeLoss from '../../../kernels/policy_loss.wgsl?raw';
import codeStats from '../../../kernels/policy_stats.wgsl?raw';
import { InputError } from '../../errors.ts';
import type { Gpu, View } from '../device.ts';
import { defineKernel, type Kernel, type Scalar } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

/** A policy loss in the form that its kernels need. It is plain data, WGSL text included, so that it can be sent to a worker. */
export interface PolicyLossText {
  /** Name of the loss, for labels and errors. */
  lossMode: string;
  /** Every number that the loss reads, by name. They become fields of `params` in the loss's WGSL. */
  numbers: Readonly<Record<string, number>>;
  /** WGSL of `fn rowGrad(t: Token) -> f32`: d loss / d logp of a token before its weight is applied; see kernels/policy_loss.wgsl. */
  wgsl: string;
  /** WGSL of `fn sequenceTerm(logRatio: f32, advantage: f32) -> f32`. Undefined if the loss needs no sums over full sequences. */
  sequenceTermWgsl?: string;
}

/** A kernel of one loss, and where the loss's own text is in it. */
interface LossKernel<R extends string = string, W extends string = string> {
  kernel: Kernel<R, W>;
  text: string;
  /** Number of lines in the kernel's code before the loss's text. */
  linesBefore: number;
}

export interface LossKernels {
  row: LossKernel<'logp' | 'inputs' | 'entrySample' | 'stats', 'dLogp'>;
  stats: LossKernel<'logp' | 'inputs' | 'seqStart', 'stats'> | undefined;
}

/** Returns the text of a kernel file from its bindings on. The loss's own text replaces everything before them. */
const frameOf = (code: string): string => code.slice(code.indexOf('@group(0) @binding(0)'));

/** Maximum number of fields in the parameters of a kernel. */
const MOST_PARAMS = 64;

function joined<R extends string, W extends string>(
  spec: { name: string; code: string; read: readonly R[]; write: readonly W[] },
  own: Record<string, Scalar>,
  { lossMode, numbers }: PolicyLossText,
  text: string,
): LossKernel<R, W> {
  for (const name of Object.keys(numbers))
    if (Object.hasOwn(own, name) || !/^[A-Za-z]\w*$/.test(name))
      throw new InputError(
        `Policy loss "${lossMode}" has a number "${name}". Its name must consist of letters and digits and must not be one of ${Object.keys(own).join(', ')}.`,
      );
  const params: Record<string, Scalar> = { ...own };
  for (const name of Object.keys(numbers)) params[name] = 'f32';
  if (Object.keys(params).length > MOST_PARAMS)
    throw new InputError(
      `Policy loss "${lossMode}" has ${Object.keys(numbers).length} parameters in \`numbers\`. At most ${MOST_PARAMS - Object.keys(own).length} are allowed.`,
    );
  const fields = Object.entries(params).map(([name, type]) => `  ${name}: ${type},`);
  const head = ['struct Params {', ...fields, '}', ''];
  const code = `${head.join('\n')}\n${text}\n\n${frameOf(spec.code)}`;
  const kernel = defineKernel({ ...spec, name: `${spec.name}_${lossMode}`, code, params });
  return { kernel, text, linesBefore: head.length };
}

const made = new Map<string, LossKernels>();

/**
 * Returns the kernels of a loss, created at first request. The same text returns the same kernels. Throws InputError.
 */
export function policyLossKernels(loss: PolicyLossText): LossKernels {
  const key = JSON.stringify([loss.lossMode, Object.keys(loss.numbers), loss.wgsl, loss.sequenceTermWgsl]);
  const known = made.get(key);
  if (known) return known;
  const row = joined(
    { name: 'policy_loss', code: codeLoss, read: ['logp', 'inputs', 'entrySample', 'stats'], write: ['dLogp'] },
    { E: 'u32', klType: 'u32', klCoef: 'f32', klClamp: 'f32' },
    loss,
    loss.wgsl,
  );
  const stats =
    loss.sequenceTermWgsl === undefined
      ? undefined
      : joined(
          { name: 'policy_stats', code: codeStats, read: ['logp', 'inputs', 'seqStart'], write: ['stats'] },
          { S: 'u32' },
          loss,
          loss.sequenceTermWgsl,
        );
  const kernels = { row, stats };
  made.set(key, kernels);
  return kernels;
}

/** Compiles the kernels of a loss in advance. Throws InputError with the compiler's message if the loss's text is wrong. */
export async function preparePolicyLoss(gpu: Gpu, loss: PolicyLossText): Promise<void> {
  const { row, stats } = policyLossKernels(loss);
  for (const lossKernel of stats ? [row, stats] : [row]) {
    await checkText(gpu.device, lossKernel, loss.lossMode);
    await gpu.prepare(lossKernel.kernel);
  }
}

async function checkText(device: GPUDevice, { kernel, text, linesBefore }: LossKernel, lossMode: string) {
  device.pushErrorScope('validation'); // an error that nobody catches would end the device's work
  const module = device.createShaderModule({ label: kernel.name, code: kernel.code });
  const [info] = await Promise.all([module.getCompilationInfo(), device.popErrorScope()]);
  const error = info.messages.find(({ type }) => type === 'error');
  if (!error) return;
  const line = error.lineNum - linesBefore;
  const lines = text.split('\n');
  const inText = line >= 1 && line <= lines.length;
  const place = inText ? `line ${line} of its WGSL` : 'where kernels/policy_loss.wgsl uses it';
  const quoted = (inText ? lines[line - 1] : (kernel.code.split('\n')[error.lineNum - 1] ?? '')).trim();
  throw new InputError(
    `Policy loss "${lossMode}" does not compile: ${error.message.split('\n')[0]} (${place}: "${quoted}").`,
  );
}

const KL_IDS: Readonly<Record<string, number>> = {
  k1: 0,
  kl: 0,
  k2: 1,
  mse: 1,
  k3: 2,
  low_var_kl: 2,
  abs: 3,
  'r*k3': 4,
};
const NO_CLAMP = 1e30;

/** Returns the number that stands for a KL type in the kernel. k1+, k3+ and abs+ have the gradient of k2. */
function klId(type: string): number {
  const id = type.endsWith('+') ? KL_IDS.k2 : KL_IDS[type];
  if (id === undefined)
    throw new RangeError(`Unknown KL type "${type}"; known: ${Object.keys(KL_IDS).join(', ')}, k1+, k3+.`);
  return id;
}

/** Inputs of the kernel for each entry in addition to its log-prob; all [E]. */
export interface PolicyRows {
  oldLogProbs: ArrayLike<number>;
  advantages: ArrayLike<number>;
  weights: ArrayLike<number>;
  refLogProbs?: ArrayLike<number> | undefined;
  /** Weights of the KL term, [E]. Default: `weights`. */
  klWeights?: ArrayLike<number> | undefined;
  /** [E] 1 = the entry is trained. Default: all entries. */
  mask?: ArrayLike<number> | undefined;
  /** [E] 1 = the entry is selected by clip-cov or kl-cov. Default: no entry. */
  selected?: ArrayLike<number> | undefined;
}

/** Number of values per row of `inputs`. */
export const POLICY_INPUTS = 6;

/** Packs the inputs of all entries as [E, 6] for the view `inputs`. */
export function packPolicyRows(rows: PolicyRows): Float32Array<ArrayBuffer> {
  const E = rows.oldLogProbs.length;
  const out = new Float32Array(E * POLICY_INPUTS);
  for (let e = 0; e < E; e++) {
    const flags = (rows.mask && rows.mask[e] === 0 ? 0 : 1) + (rows.selected && rows.selected[e] !== 0 ? 2 : 0);
    const row = [rows.oldLogProbs[e], rows.advantages[e], rows.weights[e], rows.refLogProbs?.[e] ?? 0];
    out.set([...row, (rows.klWeights ?? rows.weights)[e], flags], e * POLICY_INPUTS);
  }
  return out;
}

/** Returns the sample of each entry [E], from seqStart [S + 1]. */
export function entrySamples(seqStart: ArrayLike<number>): Uint32Array<ArrayBuffer> {
  const out = new Uint32Array(seqStart[seqStart.length - 1]);
  for (let s = 0; s + 1 < seqStart.length; s++) out.fill(s, seqStart[s], seqStart[s + 1]);
  return out;
}

interface PolicyLossArgs {
  loss: PolicyLossText;
  /** KL to the reference: its estimator, its weight (0 = off) and the upper bound of k3. Default of the bound: unlimited. */
  kl: { type: string; coef: number; clamp?: number | undefined };
  /** [E] */
  logp: View;
  /** [E, 6] from packPolicyRows */
  inputs: View;
  /** [E] from entrySamples */
  entrySample: View;
  /** [S + 1] */
  seqStart: View;
  /** [S, 4] scratch */
  stats: View;
  /** [E] out */
  dLogp: View;
  E: number;
  S: number;
}

/** Records d loss / d logp for the entries of a micro-batch. */
export function policyLoss(gpu: Gpu, args: PolicyLossArgs): void {
  const { loss, kl, logp, inputs, entrySample, seqStart, stats, dLogp, E, S } = args;
  expectElements('policy_loss logp [E]', logp, E);
  expectElements('policy_loss inputs [E, 6]', inputs, E * POLICY_INPUTS);
  expectElements('policy_loss dLogp [E]', dLogp, E);
  expectElements('policy_loss stats [S, 4]', stats, S * 4);
  const kernels = policyLossKernels(loss);
  if (kernels.stats) {
    const params = { S, ...loss.numbers };
    gpu.dispatch(kernels.stats.kernel, { logp, inputs, seqStart, stats }, params, groupsOf(S));
  }
  const params = { E, klType: klId(kl.type), klCoef: kl.coef, klClamp: kl.clamp ?? NO_CLAMP, ...loss.numbers };
  gpu.dispatch(kernels.row.kernel, { logp, inputs, entrySample, stats, dLogp }, params, groupsOf(E));
}
