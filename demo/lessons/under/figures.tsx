/** Figures of the appendix: a sum by several threads, the log-probs of a text, and a gradient by three ways. */

import { signal, useSignal } from '@preact/signals';
import { embedded, move, movedTo, numberOf } from '../kit/address.ts';
import { Figure, LiveButton, Select, Slider } from '../kit/figure.tsx';
import { isPredicted } from '../kit/predict.tsx';
import type { Scored } from './sentence.ts';
import {
  type Bits,
  byDifference,
  digits,
  DY,
  errorPlot,
  EXPONENTS,
  GRADIENT,
  gradientInWords,
  inPowers,
  RECORDED,
  ROW,
  scoredInWords,
  small,
  SOURCE,
  SUMS,
  sumsInWords,
  THREADS,
  WEIGHT,
} from './stills.ts';

/** Results in this tab: a scored text, and the kernel's gradient. */
const scored = signal<Scored | undefined>(undefined);
const kernel = signal<number[] | undefined>(undefined);

/** Seconds of the first press on two CPU cores without other work (`npm run bench:page -- --lesson under`). */
const COLD_S = { sentence: 5, kernel: 2 };

/** Figure A.1. */
export function SumFigure() {
  const shown = THREADS[Math.round(numberOf('threads', THREADS.length - 1, 0, THREADS.length - 1))];
  const revealed = embedded !== null || isPredicted('A.1');
  return (
    <Figure
      number="A.1"
      title="One sum, by several threads"
      says={revealed ? sumsInWords(shown) : 'Predict first, or look without a guess. Then the sums appear.'}
      source={`The ${RECORDED.whole.length} log-probs of figure A.2, added with 32 bits. ${SOURCE}`}
    >
      <div class="controls">
        <Slider
          control="threads"
          label="Threads"
          value={THREADS.indexOf(shown)}
          least={0}
          most={THREADS.length - 1}
          step={1}
          shown={`${shown}`}
        />
      </div>
      {revealed && (
        <div class="scroll" tabindex={0} role="group" aria-label="Sums">
          <table>
            <caption>Sum of {RECORDED.whole.length} log-probs</caption>
            <thead>
              <tr>
                <th>threads</th>
                <th>sum</th>
                <th>steps of the last bit from 1 thread</th>
              </tr>
            </thead>
            <tbody>
              {SUMS.map(({ threads, sum, gaps }) => (
                <tr key={threads} aria-current={threads === shown ? 'true' : undefined}>
                  <td>{threads}</td>
                  <td>{digits(sum)}</td>
                  <td>{gaps}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Figure>
  );
}

/** Figure A.2. */
export function SentenceFigure() {
  const text = useSignal(movedTo('text') ?? RECORDED.text);
  const shown = scored.value ?? RECORDED;
  const run = async (stop: AbortSignal, say: (text: string) => void): Promise<string> => {
    const own = text.peek().trim() === '' ? RECORDED.text : text.peek();
    move({ text: own });
    const [{ scoreTwice }, { live }] = await Promise.all([import('./sentence.ts'), import('../kit/live.ts')]);
    const found = await live(
      (session) =>
        scoreTwice(session, {
          problem: RECORDED.problem,
          text: own,
          onToken: (done, of) => say(`Token ${done} of ${of}.`),
        }),
      stop,
    );
    if (!found || stop.aborted) return '';
    scored.value = found;
    return `${found.tokens.length} tokens.`;
  };
  return (
    <Figure
      number="A.2"
      title="Your text, token by token"
      says={scoredInWords(shown)}
      source={scored.value ? 'Computed in this tab.' : SOURCE}
    >
      <p class="question">{RECORDED.problem}</p>
      <div class="field">
        <label for="own-text">Your answer, up to 48 tokens</label>
        <textarea
          id="own-text"
          rows={2}
          maxLength={400}
          value={text.value}
          onInput={(event) => (text.value = event.currentTarget.value)}
        />
      </div>
      <div class="buttons">
        <LiveButton
          id="sentence"
          label="Compute it twice here"
          coldSeconds={COLD_S.sentence}
          run={run}
          done="Computed"
          recorded="log-probs"
          onRecorded={scored.value ? () => (scored.value = undefined) : undefined}
        />
      </div>
      <div class="scroll" tabindex={0} role="group" aria-label="Log-probs of each token">
        <table>
          <caption>Log-prob of each token</caption>
          <thead>
            <tr>
              <th>token</th>
              <th>with the cache</th>
              <th>in one pass</th>
              <th>bits</th>
            </tr>
          </thead>
          <tbody>
            {shown.tokens.map((token, t) => (
              <tr key={t}>
                <td>
                  <code>{token.replaceAll('\n', '\u21b5')}</code>
                </td>
                <td>{small(shown.cached[t])}</td>
                <td>{small(shown.whole[t])}</td>
                <td>{Object.is(shown.cached[t], shown.whole[t]) ? 'equal' : 'differ'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Figure>
  );
}

/** Figure A.3. */
export function GradientFigure() {
  const exponent = numberOf('exponent', 3, EXPONENTS[0], EXPONENTS.at(-1)!);
  const bits: Bits = movedTo('bits') === '64' ? 64 : 32;
  const byKernel = kernel.value ?? RECORDED.kernel;
  const difference = byDifference(10 ** -exponent, bits);
  const says = gradientInWords(exponent, bits, byKernel);
  const run = async (): Promise<string> => {
    const { libraryGradient, onGpu } = await import('./kernel.ts');
    const [x, weight, dy] = [ROW, WEIGHT, DY].map((row) => Float32Array.from(row));
    kernel.value = [...(await onGpu((gpu) => libraryGradient(gpu, { x, weight, dy })))];
    return '8 numbers by two kernels.';
  };
  return (
    <Figure
      number="A.3"
      title="A gradient by hand, by difference, by the kernel"
      says={says}
      source={`The row is the first eight log-probs of figure A.2, and the loss is output 1. Kernel: ${kernel.value ? 'computed in this tab.' : SOURCE}`}
    >
      <div class="controls">
        <Slider
          control="exponent"
          label="Step of the difference"
          value={exponent}
          least={EXPONENTS[0]}
          most={EXPONENTS.at(-1)!}
          step={0.5}
          shown={inPowers(10 ** -exponent)}
        />
        <Select
          control="bits"
          label="Numbers with"
          initial="32"
          options={[
            { value: '32', name: '32 bits, as on the GPU' },
            { value: '64', name: '64 bits' },
          ]}
        />
      </div>
      <div class="svg" dangerouslySetInnerHTML={{ __html: errorPlot(exponent, byKernel, says) }} />
      <div class="buttons">
        <LiveButton
          id="kernel"
          label="Run the kernels here"
          coldSeconds={COLD_S.kernel}
          run={run}
          done="Computed"
          recorded="numbers"
          onRecorded={kernel.value ? () => (kernel.value = undefined) : undefined}
        />
      </div>
      <div class="scroll" tabindex={0} role="group" aria-label="Gradient of each input">
        <table>
          <caption>How much output 1 changes with each input</caption>
          <thead>
            <tr>
              <th>input</th>
              <th>by hand</th>
              <th>by difference</th>
              <th>by the kernel</th>
            </tr>
          </thead>
          <tbody>
            {GRADIENT.map((value, k) => (
              <tr key={k}>
                <td>{k + 1}</td>
                {[value, difference[k], byKernel[k]].map((one, i) => (
                  <td key={i}>{small(one)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Figure>
  );
}
