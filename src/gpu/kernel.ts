/**
 * A kernel = one WGSL file + the names and types it expects from TypeScript.
 *
 * The WGSL file is the only place that numbers bindings. The wrapper names them, and `defineKernel` compares the two
 * by reflection when the module loads, without a GPU. So a renamed, added, re-typed or re-ordered binding fails every
 * unit test instead of reading the wrong buffer.
 */

import { WgslReflect } from 'wgsl_reflect/wgsl_reflect.module.js';

export type Scalar = 'u32' | 'i32' | 'f32';

export interface KernelSpec<R extends string, W extends string, P extends string> {
  /** File name without `.wgsl`; also the label in GPU errors and in traces. */
  name: string;
  /** The WGSL text. */
  code: string;
  /** `var<storage, read>` names. */
  read: readonly R[];
  /** `var<storage, read_write>` names. */
  write: readonly W[];
  /** Fields of `struct Params`, in order. */
  params: Readonly<Record<P, Scalar>>;
}

export interface Kernel<
  R extends string = string,
  W extends string = string,
  P extends string = string,
> extends KernelSpec<R, W, P> {
  /** Distinguishes kernels in cache keys. */
  id: number;
  /** Every buffer in binding order, with its access. */
  bindings: readonly { name: R | W; binding: number; access: 'read' | 'read_write' }[];
  paramsBinding: number;
  /** Byte size of `struct Params`. */
  paramsBytes: number;
}

export class KernelError extends Error {
  override name = 'KernelError';
  constructor(kernel: string, detail: string) {
    super(`kernels/${kernel}.wgsl: ${detail}.`);
  }
}

let nextId = 0;

/** Checks the wrapper's names against the WGSL. Throws KernelError naming both sides. */
export function defineKernel<R extends string, W extends string, P extends string>(
  spec: KernelSpec<R, W, P>,
): Kernel<R, W, P> {
  const wgsl = new WgslReflect(spec.code);
  const expected = new Map<string, string>([
    ...spec.read.map((n) => [n, 'read'] as const),
    ...spec.write.map((n) => [n, 'read_write'] as const),
  ]);
  const declared = new Map(wgsl.storage.map((v) => [v.name, v]));
  for (const [name, access] of expected) {
    const found = declared.get(name);
    if (!found)
      throw new KernelError(spec.name, `the wrapper binds "${name}" but the WGSL declares only ${list(declared)}`);
    if (found.access !== access)
      throw new KernelError(spec.name, `"${name}" is ${found.access} in the WGSL but ${access} in the wrapper`);
  }
  for (const name of declared.keys()) {
    if (!expected.has(name))
      throw new KernelError(spec.name, `the WGSL declares "${name}" but the wrapper does not bind it`);
  }
  const params = wgsl.uniforms[0];
  const members =
    params && 'members' in params.type ? (params.type.members as { name: string; type: { name: string } }[]) : [];
  const [inWgsl, inWrapper] = [
    members.map((m) => `${m.name}: ${m.type.name}`).join(', '),
    Object.entries<Scalar>(spec.params)
      .map(([n, t]) => `${n}: ${t}`)
      .join(', '),
  ];
  if (!params || inWgsl !== inWrapper)
    throw new KernelError(spec.name, `struct Params is {${inWgsl}} in the WGSL but {${inWrapper}} in the wrapper`);
  const bindings = [...declared.values()].map((v) => ({
    name: v.name as R | W,
    binding: v.binding,
    access: v.access as 'read' | 'read_write',
  }));
  return { ...spec, id: nextId++, bindings, paramsBinding: params.binding, paramsBytes: members.length * 4 };
}

const list = (names: Map<string, unknown>) => [...names.keys()].map((n) => `"${n}"`).join(', ');
