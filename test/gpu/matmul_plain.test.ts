import { testMatmulVariant } from './matmulSuite.ts';

testMatmulVariant('plain');
