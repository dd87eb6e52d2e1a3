import { testAttentionBwdKv } from './attentionBackward.ts';
import { attentionCases } from './attentionCases.ts';

testAttentionBwdKv(attentionCases(32), 'shared', 4);
