import { testPackedTile } from './packedSuite.ts';

testPackedTile('subgroup4_4x8');
