import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('workgroup_4x4');
