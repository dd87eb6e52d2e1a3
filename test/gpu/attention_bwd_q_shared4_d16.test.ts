import { testAttentionBwdQ } from './attentionBackward.ts';
import { attentionCases } from './attentionCases.ts';

testAttentionBwdQ(attentionCases(16), 'shared', 4);
