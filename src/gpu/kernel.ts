/**
 * A kernel: a WGSL text, together with the names and types that TypeScript expects in it. The text is a file in kernels/, or is printed by
 * code there for a shape.
 *
 * Numbers of bindings are only in the WGSL. The wrapper in src/gpu/ops names the bindings, and `defineKernel` compares the two without a
 * GPU when the wrapper's module loads. So a renamed, added, re-typed or re-ordered binding fails every unit test instead of reading the
 * wrong buffer. test/unit/kernel.test.ts compares what this file reads from each WGSL text with the result of a full parser. That parser is
 * not used here, because its 64 kB are a third of a page's download.
 */

export type Scalar = 'u32' | 'i32' | 'f32';

interface KernelSpec<R extends string, W extends string, P extends string> {
  /** File name without `.wgsl`; also the label in GPU errors and traces. */
  name: string;
  /** The WGSL text. */
  code: string;
  /** Names of `var<storage, read>` bindings. */
  read: readonly R[];
  /** Names of `var<storage, read_write>` bindings. */
  write: readonly W[];
  /** Fields of `struct Params`, in order. */
  params: Readonly<Record<P, Scalar>>;
}

export interface Kernel<
  R extends string = string,
  W extends string = string,
  P extends string = string,
> extends KernelSpec<R, W, P> {
  /** Number that identifies the kernel in cache keys. */
  id: number;
  /** Name and access of every buffer, in the order of bindings. */
  bindings: readonly { name: R | W; binding: number; access: 'read' | 'read_write' }[];
  paramsBinding: number;
  /** Byte size of `struct Params`. */
  paramsBytes: number;
}

class KernelError extends Error {
  override name = 'KernelError';
  constructor(kernel: string, detail: string) {
    super(`kernels/${kernel}.wgsl: ${detail}.`);
  }
}

let nextId = 0;

/** Checks the names in the wrapper against the WGSL. Throws KernelError that has the names of both sides. */
export function defineKernel<R extends string, W extends string, P extends string>(
  spec: KernelSpec<R, W, P>,
): Kernel<R, W, P> {
  const { storage, uniformBinding, params } = readDeclarations(spec.code);
  const expected = new Map<string, string>([
    ...spec.read.map((n) => [n, 'read'] as const),
    ...spec.write.map((n) => [n, 'read_write'] as const),
  ]);
  const declared = new Map(storage.map((v) => [v.name, v]));
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
  const inWgsl = params.map(({ name, type }) => `${name}: ${type}`).join(', ');
  const inWrapper = Object.entries<Scalar>(spec.params)
    .map(([n, t]) => `${n}: ${t}`)
    .join(', ');
  if (uniformBinding === undefined || inWgsl !== inWrapper)
    throw new KernelError(spec.name, `struct Params is {${inWgsl}} in the WGSL but {${inWrapper}} in the wrapper`);
  const bindings = storage.map((v) => ({ ...v, name: v.name as R | W }));
  return { ...spec, id: nextId++, bindings, paramsBinding: uniformBinding, paramsBytes: params.length * 4 };
}

/**
 * Returns a family of kernels. Each kernel is generated for a shape and checked when it is first requested. The same name always returns
 * the same kernel.
 * @param name name that the kernel's file would have, without `.wgsl`; used by `webgrpo verify --kernels`
 */
export function kernelFamily<S, R extends string, W extends string, P extends string>(
  spec: Omit<KernelSpec<R, W, P>, 'name' | 'code'>,
  name: (shape: S) => string,
  print: (shape: S) => string,
): (shape: S) => Kernel<R, W, P> {
  const made = new Map<string, Kernel<R, W, P>>();
  return (shape) => {
    const key = name(shape);
    const kernel = made.get(key) ?? defineKernel({ ...spec, name: key, code: print(shape) });
    made.set(key, kernel);
    return kernel;
  };
}

export interface Declarations {
  /** `var<storage>` bindings, in the order of the file. */
  storage: { name: string; binding: number; access: 'read' | 'read_write' }[];
  /** Binding number of the first `var<uniform>`. */
  uniformBinding: number | undefined;
  /** Fields of the uniform's struct, in order; empty if the kernel has no uniform. */
  params: { name: string; type: string }[];
}

const BINDING = /@group\(\s*0\s*\)\s*@binding\(\s*(\d+)\s*\)\s*var\s*<([^>]*)>\s*(\w+)\s*:\s*(\w+)/g;

/** Reads bindings and parameters of a kernel. Expects WGSL in the style of this repository: `@group(0)` before `@binding(n)`. */
export function readDeclarations(code: string): Declarations {
  const text = code.replace(/\/\/.*|\/\*[^]*?\*\//g, '');
  const storage: Declarations['storage'] = [];
  let uniform: { binding: number; type: string } | undefined;
  for (const [, binding, space, name, type] of text.matchAll(BINDING)) {
    const [kind, access = 'read'] = space.split(',').map((part) => part.trim());
    if (kind === 'uniform') uniform ??= { binding: Number(binding), type };
    else if (kind === 'storage')
      storage.push({ name, binding: Number(binding), access: access === 'read_write' ? access : 'read' });
  }
  const body = uniform && new RegExp(`struct\\s+${uniform.type}\\s*{([^}]*)}`).exec(text)?.[1];
  const params = [...(body ?? '').matchAll(/(\w+)\s*:\s*(\w+)/g)].map(([, name, type]) => ({ name, type }));
  return { storage, uniformBinding: uniform?.binding, params };
}

const list = (names: Map<string, unknown>) => [...names.keys()].map((n) => `"${n}"`).join(', ');
