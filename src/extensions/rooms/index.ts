/**
 * Rooms: machines that generate for one trainer over NATS, and the verification of their samples. The NATS packages are loaded with the
 * first connection. Used by `webgrpo room`, `webgrpo join` and the page with `?room=`.
 */

export { type Connect, connectByWebSocket, type Credential, enter, idOf, newUserKey } from './connect.ts';
export { Leases } from './leases.ts';
export { joinRoom, type OpenedRoom, type RoomEngine } from './joinRoom.ts';
export type { Status } from './messages.ts';
export { CONTROLLER, WORKER_RIGHTS } from './names.ts';
export { NatsRollouter } from './natsRollouter.ts';
export { groupsAtOnce, roomEngine } from './roomEngine.ts';
export { RoomHost } from './roomHost.ts';
export { checkRoomTask, configOfRoom, openedKey, roomSpec } from './roomSpec.ts';
export { signedBy, Signer, textSignedBy } from './tickets.ts';
export { checkDraws, type CheckingModel, drawBounds } from './verification/draws.ts';
export { replaySample } from './verification/replay.ts';
export { checkVerifiable } from './verification/rules.ts';
export { type RejectionReason, type SampleClaim, TOLERANCE, type Verdict } from './verification/types.ts';
export { readableAlone, VerifiedSamples } from './verification/verifiedSamples.ts';
export { SampleVerifier } from './verification/verifier.ts';
export { nameOf, readObject, type WeightStore } from './weights.ts';
