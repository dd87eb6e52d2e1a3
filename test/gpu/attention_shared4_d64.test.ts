import { attentionCases } from './attentionCases.ts';
import { testAttention } from './attentionSuite.ts';

testAttention(attentionCases(64), 'shared', 4);
