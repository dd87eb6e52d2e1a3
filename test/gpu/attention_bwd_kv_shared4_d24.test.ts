import { testAttentionBwdKv } from './attentionBackward.ts';
import { attentionCases } from './attentionCases.ts';

testAttentionBwdKv(attentionCases(24), 'shared', 4);
