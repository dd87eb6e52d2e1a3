/** Hashes of a run folder: everything that must not depend on where the run was interrupted. */

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Returns a hash of each file. Metrics are hashed without times. Of the CSV, only the step numbers are hashed. */
export function snapshot(folder: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const name = path.slice(folder.length + 1);
    if (/^(report\.|events\.out|profile\/)/.test(name)) continue;
    const bytes = readFileSync(path);
    found.set(name, createHash('sha256').update(lasting(name, bytes)).digest('hex').slice(0, 16));
  }
  return new Map([...found].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function lasting(name: string, bytes: Buffer): string | Buffer {
  if (name === 'metrics.csv')
    return bytes
      .toString()
      .split('\n')
      .map((row) => row.split(',')[0])
      .join();
  if (name !== 'metrics.jsonl') return bytes;
  const lines = bytes.toString().trim().split('\n');
  return JSON.stringify(
    lines.map((line) => {
      const metrics = Object.entries(JSON.parse(line) as Record<string, unknown>);
      return metrics.filter(([key]) => !/^(timing|perf)/.test(key));
    }),
  );
}

/** Returns the first file that differs, or undefined. */
export function difference(want: Map<string, string>, got: Map<string, string>): string | undefined {
  for (const name of new Set([...want.keys(), ...got.keys()]))
    if (want.get(name) !== got.get(name))
      return `${name} ${!want.has(name) ? 'is left over' : got.has(name) ? 'differs' : 'is missing'}`;
  return undefined;
}
