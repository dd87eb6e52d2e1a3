/**
 * Recorded runs of the recipes, which cards show before anything was trained in this browser. SwiftShader of Chromium 156, two cores.
 * Seconds are those of the run alone on the machine (scripts/record-recipes.mjs). docs/lab/page.md identifies each run.
 */

export interface Recorded {
  /** [step, mean reward or pass@1] of the recorded steps. */
  curve: readonly (readonly [step: number, value: number])[];
  of: 'reward' | 'pass@1';
  seconds: { warmStart: number; step: number; evaluation: number };
  /** Steps of the recipe, as in `configs/`. */
  steps: number;
  evaluations: number;
  /** Tries per step. */
  tries: number;
  /** Number of held-out problems. */
  evaluated: number;
  /** Maximum number of tokens of an answer (data.maxResponseLength). */
  tokens: number;
  /** GPU memory of the memory plan in MiB. It does not depend on the machine. */
  memoryMib: number;
}

/** Recordings by recipe. */
export const RECORDED: Readonly<Record<string, Recorded>> = {
  'gsm8k-tool': {
    of: 'pass@1',
    curve: [
      [0, 0.395],
      [20, 0.832],
      [40, 0.969],
      [60, 0.969],
      [80, 0.98],
    ],
    seconds: { warmStart: 0, step: 1.65, evaluation: 9.6 },
    ...{ steps: 80, evaluations: 5, tries: 128, evaluated: 256, tokens: 160, memoryMib: 249 },
  },
  'reverse-text': {
    of: 'reward',
    curve: [
      [1, 0.424],
      [4, 0.398],
      [7, 0.444],
      [10, 0.447],
      [13, 0.431],
      [16, 0.673],
      [19, 0.588],
      [22, 0.571],
      [25, 0.574],
      [28, 0.674],
      [31, 0.638],
      [34, 0.716],
      [37, 0.848],
      [40, 0.772],
      [43, 0.728],
      [46, 0.83],
      [49, 0.825],
      [52, 0.881],
      [55, 0.791],
      [58, 0.839],
      [61, 0.863],
      [64, 0.802],
      [67, 0.837],
      [70, 0.889],
      [73, 0.936],
      [76, 0.906],
      [79, 0.858],
      [82, 0.886],
      [85, 0.883],
      [88, 0.965],
      [91, 0.935],
      [94, 0.975],
      [97, 0.87],
      [100, 0.924],
    ],
    seconds: { warmStart: 13.8, step: 0.39, evaluation: 1 },
    ...{ steps: 100, evaluations: 2, tries: 256, evaluated: 128, tokens: 5, memoryMib: 80 },
  },
  countdown: {
    of: 'reward',
    curve: [
      [5, 0.15],
      [45, 0.25],
      [95, 0.45],
      [145, 0.48],
    ],
    seconds: { warmStart: 75, step: 1.3, evaluation: 3 },
    ...{ steps: 150, evaluations: 4, tries: 256, evaluated: 128, tokens: 32, memoryMib: 182 },
  },
  'tic-tac-toe': {
    of: 'reward',
    curve: [
      [1, -0.039],
      [3, 0.023],
      [5, 0.025],
      [7, 0.22],
      [9, 0.169],
      [11, 0.439],
      [13, 0.31],
      [15, 0.324],
      [17, 0.3],
      [19, 0.35],
      [21, 0.386],
    ],
    seconds: { warmStart: 107, step: 9.6, evaluation: 4 },
    ...{ steps: 50, evaluations: 2, tries: 256, evaluated: 128, tokens: 180, memoryMib: 139 },
  },
  adventure: {
    of: 'reward',
    curve: [
      [1, 0.52],
      [16, 0.64],
    ],
    seconds: { warmStart: 60, step: 8, evaluation: 10 },
    ...{ steps: 40, evaluations: 2, tries: 64, evaluated: 48, tokens: 320, memoryMib: 133 },
  },
};
