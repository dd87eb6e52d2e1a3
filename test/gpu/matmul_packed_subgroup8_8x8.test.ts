import { testPackedTile } from './packedSuite.ts';

testPackedTile('subgroup8_8x8');
