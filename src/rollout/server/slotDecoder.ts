/** The part of the decoder that the scheduler drives; a test may put a model of it in place of the GPU. */

import type { Decoder } from '../decode/decoder.ts';

export type SlotDecoder = Pick<
  Decoder,
  | 'sizes'
  | 'vocabSize'
  | 'isSoftware'
  | 'ownStart'
  | 'prefixStart'
  | 'weightsChanged'
  | 'setSlot'
  | 'prefill'
  | 'verify'
  | 'setMask'
  | 'setLive'
  | 'decodeStep'
  | 'submit'
  | 'readState'
  | 'readDrawn'
>;
