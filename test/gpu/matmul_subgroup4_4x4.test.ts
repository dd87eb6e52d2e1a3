import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('subgroup4_4x4');
