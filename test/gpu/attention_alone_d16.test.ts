import { attentionCases } from './attentionCases.ts';
import { testAttention } from './attentionSuite.ts';

testAttention(attentionCases(16), 'alone');
