import { testPackedTile } from './packedSuite.ts';

testPackedTile('subgroup4_32x8');
