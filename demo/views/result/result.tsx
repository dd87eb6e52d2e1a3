/** The result of a run that has ended, as a picture and as text to share. The drawing code is loaded on demand. */

import './result.css';
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { copied } from '../../actions/clipboard.ts';
import { saveFile } from '../../actions/saveFile.ts';
import { config, history, session, stepsDone, trainedOn } from '../../state/page.ts';
import { changes, changesInWords } from '../../state/rules.ts';
import { measured } from '../../state/measured.ts';
import { comparison } from '../../state/tries/comparison.ts';
import type { CardContent } from './card.ts';
import { shared, stage } from '../../state/stage.ts';

/** Shows the result of a run that has ended and was evaluated at least once. */
export function Result() {
  const now = stage.value;
  const ended = now.name === 'looking' && now.at === 'ended';
  if (!ended || !config.value || !measured(history.value).after) return null;
  return <Card key={history.value.length} />;
}

/** Returns the content of the card for the run that ended here, or for the shared result. */
function content(): Promise<CardContent> {
  const sent = shared.value;
  const own = { adapter: trainedOn.value ?? '', model: session.value?.model.config, comparison: comparison.value };
  return import('./card.ts').then(({ contentOf }) =>
    contentOf({
      config: config.value!,
      measured: {
        ...measured(history.value),
        ...(sent && { seconds: sent.seconds, trainedTokens: sent.trainedTokens }),
      },
      changed: changesInWords(changes.value.filter(({ step }) => step <= stepsDone.value)),
      ...(sent ? { adapter: sent.adapter, model: undefined, comparison: sent.comparison } : own),
    }),
  );
}

/** The card as a picture, with the buttons that copy and save it. */
export function Card() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const told = useSignal('');
  const text = useSignal('');
  useEffect(() => {
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    const draw = async () => {
      const [made, { drawCard, textOf }] = await Promise.all([content(), import('./card.ts')]);
      text.value = textOf(made);
      if (canvas.current) drawCard(canvas.current, made);
    };
    void draw();
    const redraw = () => void draw();
    scheme.addEventListener('change', redraw);
    return () => scheme.removeEventListener('change', redraw);
  }, []);
  const picture = () =>
    new Promise<Blob>((resolve, reject) => {
      canvas.current!.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('no picture'))), 'image/png');
    });
  const copy = async (what: string, write: (clipboard: Clipboard) => Promise<void>) => {
    told.value = (await copied(write))
      ? `${what} copied.`
      : 'This browser does not let a page copy that. Save the picture, or select the text and copy it.';
  };
  const save = async () => saveFile('webgrpo-result.png', await picture());
  return (
    <section class="result" aria-label="Result">
      <canvas ref={canvas} width={1200} height={630} role="img" aria-label={text.value} />
      <div class="share">
        <button
          type="button"
          onClick={() =>
            void copy('Picture', (clipboard) => clipboard.write([new ClipboardItem({ 'image/png': picture() })]))
          }
        >
          Copy picture
        </button>
        <button type="button" onClick={() => void save()}>
          Save picture
        </button>
        <button type="button" onClick={() => void copy('Text', (clipboard) => clipboard.writeText(text.value))}>
          Copy text
        </button>
        <span class="note" role="status">
          {told.value}
        </span>
      </div>
      {/* The picture is too small to read on a phone. */}
      <details open={innerWidth <= 640}>
        <summary>The result as text</summary>
        <pre>{text.value}</pre>
      </details>
    </section>
  );
}
