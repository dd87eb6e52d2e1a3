import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('subgroup8_16x4');
