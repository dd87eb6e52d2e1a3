import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('subgroup4_8x4');
