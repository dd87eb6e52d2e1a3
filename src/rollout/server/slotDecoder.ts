/** The part of the decoder that the scheduler uses. Tests can replace it by a model without a GPU. */

import type { Decoder } from '../decode/decoder.ts';

export type SlotDecoder = Pick<
  Decoder,
  | 'sizes'
  | 'vocabSize'
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
