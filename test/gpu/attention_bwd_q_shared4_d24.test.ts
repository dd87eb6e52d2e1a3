import { testAttentionBwdQ } from './attentionBackward.ts';
import { attentionCases } from './attentionCases.ts';

testAttentionBwdQ(attentionCases(24), 'shared', 4);
