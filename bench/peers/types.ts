/** Report of a peer's process, and the list of peers. */

export const TRAIN_PEERS = ['tfjs', 'jaxjs'] as const;
export const DECODE_PEERS = ['ortWasm', 'ortWebgpu', 'tfjsDecode'] as const;
export const PEERS = [...TRAIN_PEERS, ...DECODE_PEERS];
type TrainPeer = (typeof TRAIN_PEERS)[number];
type DecodePeer = (typeof DECODE_PEERS)[number];
export type PeerName = TrainPeer | DecodePeer;

export interface TrainPeerResult {
  /** Adapter that the peer used; must be the adapter that webgrpo used. Undefined if no GPU is used. */
  adapter?: string;
  tokensPerSecond: number;
  /** Log-probs of the tokens of the headline batch: of the initial weights, and after one training step on the batch. */
  logProbs: number[];
  logProbsAfter: number[];
}

/** Decode results, keyed by the number of sequences. */
export type DecodePeerResult = { adapter?: string; decode: Record<string, DecodedSequences> };

export interface DecodedSequences {
  tokensPerSecond: number;
  /** Most likely token at every step, and its log-prob, by sequence. */
  tokens: number[][];
  logProbs: number[][];
}

export type PeerResults = Record<TrainPeer, TrainPeerResult> & Record<DecodePeer, DecodePeerResult>;
