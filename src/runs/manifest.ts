/**
 * manifest.json of a checkpoint folder: size and SHA-256 of each file. It is written after the files. A file that differs from it is never
 * loaded.
 */

import * as v from 'valibot';
import { InputError } from '../errors.ts';
import { type FileSystem, type FolderFiles, readFileText } from './fileSystem.ts';

export const MANIFEST = 'manifest.json';
const FORMAT = 1;

const schema = v.strictObject({
  format: v.literal(FORMAT),
  files: v.record(
    v.string(),
    v.strictObject({
      bytes: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
      sha256: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
    }),
  ),
});
export type Manifest = v.InferOutput<typeof schema>;

/** Returns the files, followed by their manifest. */
export async function withManifest(contents: FolderFiles): Promise<Map<string, Uint8Array | string>> {
  const files: Manifest['files'] = {};
  for (const [name, content] of contents) {
    const bytes = typeof content === 'string' ? new TextEncoder().encode(content) : content;
    files[name] = { bytes: bytes.length, sha256: await sha256(bytes) };
  }
  return new Map([...contents, [MANIFEST, manifestText({ format: FORMAT, files })]]);
}

const manifestText = (manifest: Manifest): string => `${JSON.stringify(manifest, null, 2)}\n`;

/**
 * Reads the manifest. Undefined if it is missing, as in folders of other programs or older versions. Throws InputError if it is damaged.
 */
export async function readManifest(files: FileSystem, folder: string): Promise<Manifest | undefined> {
  const path = `${folder}/${MANIFEST}`;
  if ((await files.size(path)) === undefined) return undefined;
  const text = await readFileText(files, path);
  const manifest = parsed(text);
  // Every byte of the manifest must be as written, because no other file has its checksum.
  if (manifest && manifestText(manifest) === text) return manifest;
  throw new InputError(
    `${path} is damaged, or of a newer version of webgrpo: the files of its folder cannot be checked. Use another checkpoint. If you ` +
      `are sure of these files, delete ${MANIFEST} to read them unchecked.`,
  );
}

function parsed(text: string): Manifest | undefined {
  try {
    const result = v.safeParse(schema, JSON.parse(text));
    return result.success ? result.output : undefined;
  } catch {
    return undefined; // not JSON
  }
}

/**
 * Compares files with their manifest: the sizes of all files, and the contents of those that `content` names. Throws InputError that names
 * the first difference.
 */
export async function checkFiles(
  files: FileSystem,
  folder: string,
  manifest: Manifest,
  content: (name: string) => boolean,
): Promise<void> {
  for (const [name, { bytes }] of Object.entries(manifest.files)) {
    const found = await files.size(`${folder}/${name}`);
    if (found !== bytes)
      throw differs(folder, name, found === undefined ? 'is missing' : `has ${found} bytes, not ${bytes}`);
  }
  for (const [name, saved] of Object.entries(manifest.files))
    if (content(name) && (await files.sha256(`${folder}/${name}`)) !== saved.sha256) throw changed(folder, name);
}

/** Reads a file of the folder. If the folder has a manifest and the file differs from it, throws InputError. */
export async function readChecked(
  files: FileSystem,
  folder: string,
  manifest: Manifest | undefined,
  name: string,
): Promise<Uint8Array> {
  const bytes = await files.read(`${folder}/${name}`);
  if (manifest && (await sha256(bytes)) !== manifest.files[name]?.sha256) throw changed(folder, name);
  return bytes;
}

const changed = (folder: string, name: string): InputError =>
  differs(folder, name, 'has changed since it was saved (SHA-256)');

const differs = (folder: string, name: string, how: string): InputError =>
  new InputError(
    `${folder}/${name} ${how}: the checkpoint is damaged. Use another one. If you changed the file on purpose, delete ` +
      `${MANIFEST} next to it to read the folder unchecked.`,
  );

async function sha256(bytes: Uint8Array): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
