/** Provides the parts of engines that are extensions. Imported by the programs that create engines: see layers.test.ts. */

import './modelParts.ts';
import { guidesFor } from './extensions/constrained/guides.ts';
import { draftedTokens } from './rollout/server/tokenSource.ts';
import { turnGuides } from './rollout/server/tokenWatchers.ts';
import { DraftedTokens } from './extensions/speculative/draftedTokens.ts';

turnGuides.provide(guidesFor);
draftedTokens.provide((decoder, options) => new DraftedTokens(decoder, options));
