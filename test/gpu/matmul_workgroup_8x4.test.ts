import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('workgroup_8x4');
