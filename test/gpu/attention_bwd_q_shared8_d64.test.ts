import { testAttentionBwdQ } from './attentionBackward.ts';
import { attentionCases } from './attentionCases.ts';

testAttentionBwdQ(attentionCases(64), 'shared', 8);
