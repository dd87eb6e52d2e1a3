/**
 * Buffers of 16-bit floats, and variants of kernels that read and write them. In WGSL, the element type of a buffer that can hold halves is
 * an alias: `alias Act = f32;` (or vec4f). Values are converted to f32 when loaded and to `Act` when stored. With another type in the
 * alias, the same kernel works on halves. It still computes in f32.
 */

import type { View } from './view.ts';
import type { Kernel } from './kernel.ts';

const HALF = { f32: 'f16', vec4f: 'vec4h' };
let nextId = 1 << 20; // above the ids that defineKernel assigns
const made = new WeakMap<Kernel, Map<number, Kernel>>();

/**
 * Returns the variant of a kernel for these buffers: the kernel itself if none of them has halves. Throws if the kernel does not support
 * halves in one of these buffers.
 */
export function forHalves(kernel: Kernel, buffers: Readonly<Record<string, Pick<View, 'half'>>>): Kernel {
  let mask = 0;
  kernel.bindings.forEach(({ name }, i) => {
    if (buffers[name].half) mask |= 1 << i;
  });
  if (mask === 0) return kernel;
  const known = made.get(kernel) ?? new Map<number, Kernel>();
  made.set(kernel, known);
  let found = known.get(mask);
  if (!found) known.set(mask, (found = { ...kernel, id: nextId++, code: halved(kernel, mask) }));
  return found;
}

/** Returns the kernel's WGSL with halves in every binding of the bit mask `mask`. Bit i is `kernel.bindings[i]`. */
function halved(kernel: Kernel, mask: number): string {
  const types = new Map<string, boolean>();
  kernel.bindings.forEach(({ name }, i) => {
    const [, type] = new RegExp(`\\b${name}\\s*:\\s*array<(\\w+)>`).exec(kernel.code) ?? [];
    const half = (mask & (1 << i)) !== 0;
    if (half && !aliasOf(type).test(kernel.code))
      throw new Error(`kernels/${kernel.name}.wgsl: "${name}" is bound to halves, but its elements are "${type}".`);
    if ((types.get(type) ?? half) !== half)
      throw new Error(
        `kernels/${kernel.name}.wgsl: "${name}" and another buffer of ${type} must both hold halves, or neither.`,
      );
    types.set(type, half);
  });
  let code = `enable f16;\n${kernel.code}`;
  for (const [type, half] of types)
    if (half) code = code.replace(aliasOf(type), (_, plain: keyof typeof HALF) => `alias ${type} = ${HALF[plain]};`);
  return code;
}

const aliasOf = (type: string) => new RegExp(`\\balias ${type} = (f32|vec4f);`);

/**
 * Operands of a matrix product that can be halves together. In order: activations to activations, activations to the residual stream (or
 * logits), only a weight, only activations (for a weight's gradient).
 */
const FORMS = [['a', 'b', 'y'], ['a', 'b'], ['b'], ['a']];
const FORWARD_FORMS = 2;

/** Returns the variants for halves of matrix products and attention that a model in float16 uses. */
export function halfForms(kernels: Kernel[], training: boolean): Kernel[] {
  const forms = FORMS.slice(0, training ? undefined : FORWARD_FORMS);
  return kernels.flatMap((kernel) => {
    const named = kernel.name.startsWith('matmul') ? forms : [['q', 'kv', 'out']];
    return named.map((names) => {
      const buffers = kernel.bindings.map(({ name }) => [name, { half: names.includes(name) }] as const);
      return forHalves(kernel, Object.fromEntries(buffers));
    });
  });
}
