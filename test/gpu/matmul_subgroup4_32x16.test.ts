import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('subgroup4_32x16');
