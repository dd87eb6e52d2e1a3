/** Which kernels ran, for the list at the end of `npm test`: names as `defineKernel` has them, `f16 NAME` for forms of halves. */
import { appendFileSync, existsSync, writeFileSync } from 'node:fs';
import { printedKernels } from '../printedKernels.ts';

/** Those of usual models: attention is printed for any multiple of 4. */
const HEAD_DIMS = [16, 24, 32, 64, 128];

const names = new Set<string>();
const seen = new WeakSet<GPUComputePipeline>();

/** Every pipeline that is set is about to be dispatched; those that are compiled ahead and never used do not count. */
export function recordKernels(): void {
  const prototype = GPUComputePassEncoder.prototype;
  const setPipeline = prototype.setPipeline;
  prototype.setPipeline = function (pipeline) {
    if (!seen.has(pipeline)) {
      seen.add(pipeline);
      names.add(pipeline.label);
    }
    setPipeline.call(this, pipeline);
  };
}

/** Adds what ran since the last call to the file that scripts/test.mjs names, and writes the printed kernels beside it. */
export function writeKernelsRun(): void {
  const file = process.env['KERNELS_RUN'];
  if (file && names.size > 0) appendFileSync(file, `${[...names].join('\n')}\n`);
  names.clear();
  const printed = `${file}.printed.json`;
  if (file && !existsSync(printed))
    writeFileSync(printed, JSON.stringify(Object.fromEntries(printedKernels(HEAD_DIMS))));
}
