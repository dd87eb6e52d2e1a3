import { testPackedTile } from './packedSuite.ts';

testPackedTile('plain_2x8');
