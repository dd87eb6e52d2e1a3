import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('subgroup8_32x8');
