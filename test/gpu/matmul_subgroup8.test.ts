import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('subgroup8');
