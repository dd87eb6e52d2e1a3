import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('plain_4x1');
