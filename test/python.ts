/** The Python of this machine, for tests of what webgrpo exports to it. */

import { spawnSync } from 'node:child_process';

export const hasPython = spawnSync('python3', ['--version']).status === 0;
