import { testAttentionBwdKv } from './attentionBackward.ts';
import { attentionCases } from './attentionCases.ts';

testAttentionBwdKv(attentionCases(64), 'shared', 4);
