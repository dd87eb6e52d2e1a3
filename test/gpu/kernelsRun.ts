/**
 * Records which kernels ran, for the list of untested kernels at the end of `npm test`. Names are those of `defineKernel`, `f16 NAME` for
 * 16-bit forms.
 */
import { appendFileSync, existsSync, writeFileSync } from 'node:fs';
import { printedKernels } from '../printedKernels.ts';
import { isFull } from './full.ts';

/** Head dims of common models, whose attention kernels are listed. A kernel can be generated for any multiple of 4; 32 and 128 are tested in --full. */
const HEAD_DIMS = [16, 24, 64, ...(isFull ? [32, 128] : [])];

const names = new Set<string>();
const seen = new WeakSet<GPUComputePipeline>();

/**
 * Records every pipeline that is set in a pass, because a set pipeline is dispatched next. Pipelines that are only compiled do not count.
 */
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

/** Adds the kernels since the last call to the file that scripts/test.mjs names, and writes the text of generated kernels next to it. */
export function writeKernelsRun(): void {
  const file = process.env['KERNELS_RUN'];
  if (file && names.size > 0) appendFileSync(file, `${[...names].join('\n')}\n`);
  names.clear();
  const printed = `${file}.printed.json`;
  if (file && !existsSync(printed))
    writeFileSync(printed, JSON.stringify(Object.fromEntries(printedKernels(HEAD_DIMS))));
}
