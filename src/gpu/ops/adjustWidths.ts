/** Widths of the buffers of `kernels/adjust_logits.wgsl`, for code that must not load the kernels. */

/** In order: words per slot in `extras`, maximum number of biases and of alternatives per slot, words per sampled token in `details`. */
export const EXTRA_WIDTH = 136;
export const MAX_BIASES = 64;
export const MAX_ALTERNATIVES = 8;
export const DETAIL_WIDTH = 1 + 2 * MAX_ALTERNATIVES;
