/** Configs as plain objects, and access to their values by a dotted path such as `actor.optim.lr`. */

export type Tree = Record<string, unknown>;

/** True for an object that is not a list. */
export function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Value at a dotted path; undefined if it is missing. Inherited keys count as missing. */
export function valueAt(tree: unknown, path: string): unknown {
  return path
    .split('.')
    .reduce<unknown>((node, key) => (isTree(node) && Object.hasOwn(node, key) ? node[key] : undefined), tree);
}

/** Returns every value of the tree that is not itself a tree, with its dotted path. */
export function leaves(tree: object, part = ''): [path: string, value: unknown][] {
  return Object.entries(tree).flatMap(([key, value]: [string, unknown]) =>
    isTree(value) ? leaves(value, `${part}${key}.`) : [[part + key, value] as [string, unknown]],
  );
}

/** Sets an own key of the tree, even one that objects inherit: `tree["__proto__"] = value` would set the prototype. */
export function setOwn<T>(tree: Tree, key: string, value: T): T {
  Object.defineProperty(tree, key, { value, writable: true, enumerable: true, configurable: true });
  return value;
}

/** Sets the value at a dotted path and creates missing parts. Returns false if one of the parts is a value. */
export function setAt(tree: Tree, path: string, value: unknown): boolean {
  const keys = path.split('.');
  let at = tree;
  for (const key of keys.slice(0, -1)) {
    const inner = (Object.hasOwn(at, key) ? at[key] : undefined) ?? setOwn(at, key, {});
    if (!isTree(inner)) return false;
    at = inner;
  }
  setOwn(at, keys[keys.length - 1], value);
  return true;
}

/** Deletes the value at a dotted path. */
export function deleteAt(tree: Tree, path: string): void {
  const [key, ...rest] = path.split('.');
  if (rest.length === 0) delete tree[key];
  else if (Object.hasOwn(tree, key) && isTree(tree[key])) deleteAt(tree[key], rest.join('.'));
}

/** Returns a copy whose nested objects can be modified; all other values are shared. */
export function copyOf(tree: Tree): Tree {
  const copy: Tree = {};
  for (const [key, value] of Object.entries(tree)) setOwn(copy, key, isTree(value) ? copyOf(value) : value);
  return copy;
}

/** Formats a value for an error message. */
export function show(value: unknown): string {
  const text = typeof value === 'string' ? JSON.stringify(value.slice(0, 60)) : written(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** JSON text of a value, or its type if it is nested too deeply for JSON. */
function written(value: unknown): string {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return typeof value;
  }
}
