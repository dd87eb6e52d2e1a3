/** The foot of the page: its terms, what runs here, the licence, and where the method is described. */

import { license, version } from '../../package.json';
import { GLOSSARY } from './glossary.ts';

/** The foot of the page. */
export function About() {
  return (
    <>
      <details class="fold">
        <summary>Glossary</summary>
        <dl class="words">
          {Object.entries(GLOSSARY).map(([word, meaning]) => (
            <div key={word}>
              <dt>{word}</dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
      </details>
      <p>
        {`webgrpo ${version}, ${license}. Everything runs in this tab, and nothing is uploaded unless the tab joins a room. Method: `}
        <a href="https://arxiv.org/abs/2402.03300">GRPO, in DeepSeekMath</a>. To learn it:{' '}
        <a href="./lessons/index.html">lessons</a>.
      </p>
    </>
  );
}
