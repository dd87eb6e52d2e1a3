import { testAttentionBwdQ } from './attentionBackward.ts';
import { GENERIC_CASES } from './attentionCases.ts';

testAttentionBwdQ(GENERIC_CASES);
