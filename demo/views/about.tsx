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
        <a href="https://arxiv.org/abs/2402.03300">GRPO, in DeepSeekMath</a>. Lesson 1:{' '}
        <a href="./lessons/1-groups/index.html">eight tries at one problem</a>. Lesson 2:{' '}
        <a href="./lessons/2-losses/index.html">one group, five losses</a>. Lesson 4:{' '}
        <a href="./lessons/4-tools/index.html">tools, turns and a cheated reward</a>.
      </p>
    </>
  );
}
