/**
 * Groups that outlive a step: one-step-off, fully-async, over-sampling, the replay buffer. `src/trainerParts.ts` provides them to the
 * trainer. Rooms, clients and replays use their encodings of samples.
 */

export { ExperienceQueue } from './experienceQueue.ts';
export { staleShare } from './overSampling.ts';
export { recordOf, recordsOf, sampleOf, waitsOf } from './records.ts';
export { decodeSample, encodeArrays, encodeSample, withMissing } from './sampleCodec.ts';
export { arraysSchema, readInFlight, savedReward, whole } from './savedGroups.ts';
