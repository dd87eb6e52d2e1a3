import { testAttentionBwdQ } from './attentionBackward.ts';
import { attentionCases } from './attentionCases.ts';

testAttentionBwdQ(attentionCases(32), 'shared', 4);
