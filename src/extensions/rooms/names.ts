/**
 * Names of a room's streams, buckets and subjects on its NATS server. Each room has its own NATS account with two users: the controller,
 * which may do anything, and a user that all workers share, with `WORKER_RIGHTS`.
 */

/** Stream of finished samples that the controller has not yet received. */
export const SAMPLES = {
  stream: 'webgrpo-samples',
  subjects: 'webgrpo.sample.*.*',
  consumer: 'controller',
  subjectOf: (worker: string, uid: string): string => `webgrpo.sample.${worker}.${token(uid)}`,
};

/** Names of two buckets: the object store (model files, versions of the weights) and the key-value store (the room's state). */
export const WEIGHTS_BUCKET = 'webgrpo-weights';
export const STATE_BUCKET = 'webgrpo-state';

/**
 * Keys of the room's state in the key-value store. Workers can read only `room` and `version`. `secret` is the key of the tickets; `server`
 * is the id of the server process for which the consumer was created.
 */
export const STATE = {
  room: 'room',
  version: 'version',
  secret: 'secret',
  server: 'server',
} as const;

/** Subject of requests to join. */
export const JOIN = 'webgrpo.join';
/** Subject of a worker's requests for a group. The controller answers only requests with the worker's signature. */
export const takeSubject = (worker: string): string => `webgrpo.take.${worker}`;
export const TAKES = 'webgrpo.take.*';
/** Subject of messages to all workers, such as new weights and cancelled groups. */
export const NOTICES = 'webgrpo.notice';
/** Subject of a worker's status messages. */
export const statusSubject = (worker: string): string => `webgrpo.status.${worker}`;
export const STATUSES = 'webgrpo.status.*';
/** Returns the worker that the subject of a message names as its sender. */
export const workerOf = (subject: string): string => subject.split('.')[2];

/** Names of the streams in which NATS stores the two buckets. */
export const weightsStream = `OBJ_${WEIGHTS_BUCKET}`;
export const stateStream = `KV_${STATE_BUCKET}`;
/** Returns the subject under which NATS stores a key of the room's state. */
export const stateSubject = (key: string): string => `$KV.${STATE_BUCKET}.${key}`;

export const CONTROLLER = 'controller';

/**
 * Returns the subject prefix of the replies that a client receives. Workers can subscribe to `_INBOX.*.>`, so the controller has another
 * prefix: samples and the secret of the tickets arrive there.
 */
export const inboxOf = (name: string): string => (name === CONTROLLER ? '_INBOX-CONTROLLER' : `_INBOX.${name}`);

/**
 * Subjects to which workers can publish and subscribe. These rights let a worker request to join, request groups, report its status, send
 * samples, and read weights and config. Workers cannot acknowledge a message or create a consumer, which could read any message.
 */
export const WORKER_RIGHTS = {
  publish: [
    JOIN,
    SAMPLES.subjects,
    STATUSES,
    TAKES,
    `$JS.API.DIRECT.GET.${weightsStream}`,
    `$JS.API.DIRECT.GET.${weightsStream}.>`,
    ...[STATE.room, STATE.version].map((key) => `$JS.API.DIRECT.GET.${stateStream}.${stateSubject(key)}`),
  ],
  subscribe: [`${inboxOf('*')}.>`, NOTICES],
};

/** Encodes a text so that it can be one part of a subject. */
export const token = (text: string): string =>
  encodeURIComponent(text).replace(/[.*]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);
