/** Tests `webgrpo generate`: its flags, and a conversation over the scheduler on a simulated decoder. */
import { expect, test } from 'vitest';
import { readArgs } from '../../src/cli/args.ts';
import { Conversation } from '../../src/cli/generate/conversation.ts';
import { heldBack } from '../../src/rollout/decode/stopStrings.ts';
import { SAMPLING_FLAGS, samplingOf } from '../../src/cli/generate/samplingFlags.ts';
import { RolloutServer } from '../../src/rollout/server/server.ts';
import { vocabularyOf } from '../../src/model/tokenizer/vocabulary.ts';
import { tokenizer, tokenizerJson } from '../scriptedTurns.ts';
import { ModelSlotDecoder } from '../slotDecoder.ts';

const MODEL = { eosTokenIds: tokenizer.eosTokenIds, vocabSize: tokenizer.vocabSize };
const read = (...args: string[]) => samplingOf(readArgs(args, SAMPLING_FLAGS), MODEL);

test('every sampling setting has a flag; without flags nothing is cut, penalised or biased', () => {
  const plain = { topK: 0, topP: 1, minP: 0, repetitionPenalty: 1, presencePenalty: 0, frequencyPenalty: 0 };
  expect(read()).toMatchObject({ temperature: 1, ...plain, minNewTokens: 0, logitBias: [], stop: [] });
  const numbers = '--temperature 0.7 --top-k 5 --top-p 0.9 --min-p 0.1 --min-new-tokens 2 --max-new-tokens 9';
  const penalties = '--repetition-penalty 1.2 --presence-penalty 0.5 --frequency-penalty=-1';
  const words = `${numbers} ${penalties} --logit-bias 3=-2.5 --logit-bias 4=1e1 --stop a --stop b`.split(' ');
  expect(read(...words, '--include-stop')).toEqual({
    temperature: 0.7,
    topK: 5,
    topP: 0.9,
    minP: 0.1,
    minNewTokens: 2,
    maxNewTokens: 9,
    repetitionPenalty: 1.2,
    presencePenalty: 0.5,
    frequencyPenalty: -1,
    includeStopStrInOutput: true,
    logitBias: [[3, -2.5] as const, [4, 10] as const],
    stop: ['a', 'b'],
    stopTokenIds: tokenizer.eosTokenIds,
  });
});

test('flags out of range are refused with one error message', () => {
  expect(() => read('--top-p', '0')).toThrow(/^--top-p is "0"; allowed: a number from 0.000001 to 1\. Change it\.$/);
  expect(() => read('--top-k', '1.5')).toThrow(/^--top-k is 1.5; allowed: a whole number from 0 to/);
  expect(() => read('--logit-bias', 'x=1')).toThrow(/^--logit-bias is "x=1"; allowed: a token id from 0 to \d+, "=", /);
  expect(() => read('--logit-bias', '3=1', '--logit-bias', '3=2')).toThrow('--logit-bias names token 3 twice. Give it');
  expect(() => read('--stop', '')).toThrow(/^--stop is empty/);
  expect(() => read('--min-new-tokens', '200')).toThrow(/allowed: a number from 0 to 160/);
});

test('the part of a text that can start a stop string is held back', () => {
  expect(heldBack('the answer</an', ['</answer>', 'x'])).toBe(4);
  expect(heldBack('the answer', ['</answer>'])).toBe(0);
  expect(heldBack('aab', ['aabc', 'b'])).toBe(3);
});

/** Creates a conversation whose model replies with these turns in order. The reply depends on the content of the slot's context. */
function conversationThatSays(turns: string[], stop: string[] = [], contextLength = 200) {
  const promptIds = tokenizer.encodeChat([{ role: 'user', content: 'What is 1 + 1?' }]);
  const sizes = { maxNumSeqs: 1, slotCapacity: contextLength - promptIds.length, maxPrompts: 1 };
  const decoder = new ModelSlotDecoder({ ...sizes, maxPromptLength: promptIds.length, maxBatchedTokens: 256 });
  decoder.vocabSize = tokenizer.vocabSize;
  let turn = 0;
  decoder.says = (_, drawn) => [...tokenizer.encode(turns[turn]), tokenizer.eosTokenIds[0]][drawn];
  const server = new RolloutServer(decoder, { vocabulary: () => vocabularyOf(tokenizerJson) });
  const pieces: string[] = [];
  const sampling = { ...read('--max-new-tokens', '60'), stop };
  const conversation = new Conversation({
    engine: server,
    tokenizer,
    promptIds,
    contextLength,
    key: [1, 2],
    sampling,
    onText: (text) => pieces.push(text),
  });
  const answer = async () => {
    const answered = await conversation.answer();
    turn++;
    return answered;
  };
  return { conversation, server, pieces, answer };
}

test('a chat continues from its own cache, turn by turn, and its text arrives in pieces', async () => {
  const { conversation, server, pieces, answer } = conversationThatSays(['It is 2.', 'And 3 + 4 is 7.', 'Yes.'], ['4']);
  expect(await answer()).toMatchObject({ text: 'It is 2.', stopReason: 'stop' });
  expect(pieces.filter((piece) => piece !== '').length).toBeGreaterThan(1);
  const before = await server.takeStats();
  expect(conversation.say('And 3 + 4?')).toBe(true);
  const second = await answer();
  expect(second).toMatchObject({ text: 'And 3 + ', stopReason: 'stop_string' });
  const { cachedTokens, prefillTokens } = await server.takeStats();
  expect(cachedTokens).toBeGreaterThanOrEqual(before.prefillTokens + before.generatedTokens - 1);
  expect(prefillTokens).toBeLessThan(40);
  expect(pieces.join('')).toBe('It is 2.And 3 + ');
  expect(conversation.say('Sure?')).toBe(true); // after an end token that the model did not sample
  expect(await answer()).toMatchObject({ text: 'Yes.', stopReason: 'stop' });
  conversation.close();
});

test('a full chat accepts no more messages', async () => {
  const { conversation, answer } = conversationThatSays(['one two three four five six seven eight nine'], [], 60);
  await answer();
  const { room } = conversation;
  expect(conversation.say('word '.repeat(60))).toBe(false);
  expect(conversation.room).toBe(room);
  conversation.close();
});
