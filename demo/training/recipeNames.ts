/** `configs/<name>.yaml`, the model of a recipe whose start is made first, to name; undefined for any other model. */
export const warmStartName = (path: string): string | undefined => /^configs\/([\w-]+)\.yaml$/.exec(path)?.[1];
