import { testAttentionBwdKv } from './attentionBackward.ts';
import { attentionCases } from './attentionCases.ts';

testAttentionBwdKv(attentionCases(16), 'shared', 8);
