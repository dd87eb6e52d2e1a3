import { testAttentionBwdKv } from './attentionBackward.ts';
import { GENERIC_CASES } from './attentionCases.ts';

testAttentionBwdKv(GENERIC_CASES);
