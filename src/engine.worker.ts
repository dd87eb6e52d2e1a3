/** Entry of the web worker that owns a GPUDevice; see engineHost.ts. */

import * as Comlink from 'comlink';
import './engineParts.ts';
import { createEngineHost } from './workers/engineHost.ts';
import { createDeviceEngine } from './workers/localEngine.ts';

Comlink.expose(createEngineHost(createDeviceEngine));
