import { testPackedTile } from './packedSuite.ts';

testPackedTile('subgroup4_8x8');
