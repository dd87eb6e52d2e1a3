/** Entry of the web worker that owns a GPUDevice; see engineHost.ts. */

import * as Comlink from 'comlink';
import { createEngineHost } from './engineHost.ts';
import { createDeviceEngine } from './localEngine.ts';

Comlink.expose(createEngineHost(createDeviceEngine));
