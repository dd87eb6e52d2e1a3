import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('subgroup4_16x4');
