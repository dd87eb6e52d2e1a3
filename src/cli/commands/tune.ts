/** `webgrpo tune`: times the matmul kernels with different tile sizes, and stores the fastest sizes for this machine. */

import { Gpu } from '../../gpu/device.ts';
import { isMeasured } from '../../gpu/ops/matmul.ts';
import { type Tuning, tuneMatmul } from '../../gpu/tune.ts';
import { InputError } from '../../errors.ts';
import { keepTuning, tuningFile } from '../../model/kernels/tuning.ts';
import { type Command, JSON_FLAG } from '../command.ts';
import { installDawn } from '../dawn.ts';
import { tuningStore } from '../diskStore.ts';
import { writeWhole } from '../files.ts';
import { say } from '../run/progress.ts';

export const tune: Command = {
  summary: 'time the kernels that run on this adapter, and choose',
  usage: ['tune', 'tune --out tiles.json', 'train configs/gsm8k-tool.yaml trainer.kernelTuning=tiles.json'],
  reads: [],
  flags: {
    ...JSON_FLAG,
    out: { value: 'FILE', help: 'write the table there, for trainer.kernelTuning' },
    seconds: { value: 'N', help: 'seconds of timing, without compilation (default: 3)' },
  },
  details: () =>
    '  A run times kernels automatically on an adapter that the built-in table does not cover. All tiles give the same results, bit for bit.',
  async run({ flags }, io) {
    const budget = Number(flags['seconds'] ?? 3);
    if (!(budget > 0)) throw new InputError(`--seconds is "${flags['seconds']}"; allowed: a number above 0.`);
    await installDawn();
    const gpu = await Gpu.create();
    try {
      const { description, vendor } = gpu.adapter;
      io.text(`  adapter: ${description || vendor}`);
      const tuning = await tuneMatmul(gpu, budget);
      lines(tuning).forEach((line) => io.text(line));
      if (typeof flags['out'] === 'string') {
        await writeWhole(flags['out'], `${JSON.stringify(tuningFile(gpu, tuning), null, 2)}\n`);
        say(`tune: wrote ${flags['out']}`);
      }
      if (isMeasured(gpu)) say('tune: runs use the built-in table here unless trainer.kernelTuning names a file');
      else await keepTuning(gpu, tuning, tuningStore());
      io.result({ adapter: description || vendor, ...tuningFile(gpu, tuning) });
    } finally {
      gpu.destroy();
    }
  },
};

function lines({ table, times, n, k, seconds }: Tuning): string[] {
  const chosen = (rows: number) => table.find(([upTo]) => rows <= upTo)![1];
  const line = ({ rows, us }: Tuning['times'][number]) => {
    const byTime = Object.entries(us).sort(([, a], [, b]) => a - b);
    const shown = byTime.slice(0, 4).map(([tile, t]) => `${tile} ${gflops(rows, t).toPrecision(3)}`);
    return `  ${`${rows}`.padStart(5)}  ${chosen(rows).padEnd(16)} ${shown.join(', ')}`;
  };
  const gflops = (rows: number, us: number) => (2 * rows * n * k) / us / 1000;
  return [
    `  timed for ${seconds.toFixed(1)} s with ${n} columns, ${k} deep; GFLOP/s of the fastest four`,
    `  ${'rows'.padStart(5)}  ${'chosen'.padEnd(16)}`,
    ...times.map(line),
  ];
}
