import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('subgroup8_8x2');
