/** The eight most likely tokens at a position, computed with the current weights. The model reads the tokens before the position again. */

import { type ReadonlySignal, useSignal, useSignalEffect } from '@preact/signals';
import { short } from '../../../src/ui/format.ts';
import type { Generation } from '../../../src/rollout/types.ts';
import { config, session, stepsDone, weightsStep } from '../../state/page.ts';
import { record } from '../../state/rules.ts';
import { valueInForce } from '../../storage/runChanges.ts';
import type { TryTokens } from '../../training/tokens.ts';
import type { TokenView } from './measures.ts';

/** Milliseconds before a request, so that tokens that the pointer only passes cause no request. */
const WAIT_MS = 200;

interface Choices {
  likeliest: { tokenId: number; probability: number }[];
  entropy: number;
  /** Step of the weights that answered; undefined = an update changed them meanwhile. */
  step: number | undefined;
}

interface AlternativesProps {
  tokens: TryTokens;
  views: readonly TokenView[];
  at: ReadonlySignal<number>;
}

/** Lists the alternatives to the selected token. */
export function Alternatives({ tokens, views, at }: AlternativesProps) {
  const choices = useSignal<Choices | string | undefined>(undefined);
  useSignalEffect(() => {
    const place = at.value;
    choices.value = undefined;
    if (!views[place].drawn) return;
    if (session.value?.engine !== tokens.step.engine) {
      choices.value = "The run's engine is closed, so likely tokens are not available.";
      return;
    }
    let current = true;
    const show = (answer: Choices | string) => {
      if (current) choices.value = answer;
    };
    const timer = setTimeout(() => {
      choicesAt(tokens, place).then(show, (error: unknown) => show(`The engine did not answer: ${String(error)}`));
    }, WAIT_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  });
  const drawn = views[at.value];
  if (!drawn.drawn) return null;
  const now = choices.value;
  return (
    <div class="likeliest" aria-busy={now === undefined}>
      <h3>Most likely tokens, current weights</h3>
      {typeof now === 'object' ? (
        <Bars choices={now} drawn={drawn.id} textOf={(id) => tokens.step.engine.tokenizer.decode([id])} />
      ) : (
        <p class="note">{now ?? 'Computing...'}</p>
      )}
    </div>
  );
}

function Bars({ choices, drawn, textOf }: { choices: Choices; drawn: number; textOf: (id: number) => string }) {
  const { likeliest, entropy, step } = choices;
  return (
    <>
      <ol class="bars">
        {likeliest.map(({ tokenId, probability }) => (
          <li key={tokenId} aria-current={tokenId === drawn}>
            <code>{JSON.stringify(textOf(tokenId))}</code>
            <span class="track" aria-hidden="true">
              <span style={{ width: `${probability * 100}%` }} />
            </span>
            <span class="share-text">
              {chance(probability)}
              {tokenId === drawn && <span class="heard"> (sampled)</span>}
            </span>
          </li>
        ))}
      </ol>
      <p class="note">
        {likeliest.some(({ tokenId }) => tokenId === drawn)
          ? 'The marked token was sampled. '
          : 'The sampled token is no longer among them. '}
        Entropy now {short(entropy)} nats.{step !== undefined && ` Weights after step ${step}.`}
      </p>
    </>
  );
}

const chance = (p: number) => (p < 0.001 ? '< 0.001' : p.toFixed(3));

let asked = 0;

/** Step of the weights that answer now; undefined while an update changes them. */
const stepInEngine = (): number | undefined => (session.peek()?.evaluatesStart ? 0 : weightsStep.peek());

/** Samples one token after the try's tokens before `at`, and returns the alternatives. */
async function choicesAt({ sample, step: { engine } }: TryTokens, at: number): Promise<Choices> {
  const { promptIds, responseIds } = sample.trajectory;
  const requestId = `inspector.${asked++}`;
  const before = stepInEngine();
  const own = config.peek()?.rollout.temperature ?? 1;
  const temperature = valueInForce(record.peek(), stepsDone.peek() + 1, 'rollout.temperature', own);
  const sampling = { temperature, topK: 0, topP: 1, minP: 0 };
  try {
    const answer = await engine.rollout.generate({
      requestId,
      contextIds: Uint32Array.from([...promptIds, ...responseIds.subarray(0, at)]),
      promptLength: promptIds.length,
      key: [0, asked],
      sampling: { ...sampling, maxNewTokens: 1, stopTokenIds: [], entropy: true, topLogprobs: 8 },
    });
    return { ...read(answer), step: before === stepInEngine() ? before : undefined };
  } finally {
    engine.rollout.release(requestId);
  }
}

const read = ({ alternatives, entropies }: Generation): Omit<Choices, 'step'> => ({
  likeliest: alternatives![0].map(({ tokenId, logProb }) => ({ tokenId, probability: Math.exp(logProb) })),
  entropy: entropies![0],
});
