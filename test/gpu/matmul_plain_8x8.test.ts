import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('plain_8x8');
