/** A scripted engine that learns to write a word backwards. */

import type { CheckpointWithTokenizer } from '../../src/model/checkpoint/checkpoint.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { ScriptedEngine } from '../scriptedEngine.ts';

export const scriptedLoopEngine = ({ config, weights, tokenizerJson, tokenizerConfigJson }: CheckpointWithTokenizer) =>
  new ScriptedEngine({
    ...{ config, weights, tokenizer: new ChatTokenizer(tokenizerJson, tokenizerConfigJson) },
    solve: (prompt) => {
      const word = /user\W+([a-z]+)\W/.exec(prompt)?.[1];
      return word === undefined ? undefined : [[...word].reverse().join('')];
    },
  });
