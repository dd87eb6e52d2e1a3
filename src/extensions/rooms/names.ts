/**
 * Names of a room's streams, buckets and subjects on its NATS server. One account of a server holds one room and has two users: the
 * controller can do anything, and all workers share a user with `WORKER_RIGHTS`.
 */

/** Finished samples, until the controller has received them. */
export const SAMPLES = {
  stream: 'webgrpo-samples',
  subjects: 'webgrpo.sample.*.*',
  consumer: 'controller',
  subjectOf: (worker: string, uid: string): string => `webgrpo.sample.${worker}.${token(uid)}`,
};

/** Buckets of the object store (the model's files, versions of its weights) and of the key-value store. */
export const WEIGHTS_BUCKET = 'webgrpo-weights';
export const STATE_BUCKET = 'webgrpo-state';

/**
 * Keys of the state. Workers read the first two. `secret` is the key of the tickets; `server` identifies the server start that the
 * consumers were created in.
 */
export const STATE = {
  room: 'room',
  version: 'version',
  secret: 'secret',
  server: 'server',
} as const;

/** Requests to join. */
export const JOIN = 'webgrpo.join';
/** Requests for a group. The controller answers to the worker that signed. */
export const takeSubject = (worker: string): string => `webgrpo.take.${worker}`;
export const TAKES = 'webgrpo.take.*';
/** Notices to all workers: new weights, cancelled groups. */
export const NOTICES = 'webgrpo.notice';
/** Subject of a worker's progress messages. */
export const statusSubject = (worker: string): string => `webgrpo.status.${worker}`;
export const STATUSES = 'webgrpo.status.*';
/** Returns the worker that a message names as its sender. */
export const workerOf = (subject: string): string => subject.split('.')[2];

/** Subjects of the streams that hold the buckets, as NATS names them. */
export const weightsStream = `OBJ_${WEIGHTS_BUCKET}`;
export const stateStream = `KV_${STATE_BUCKET}`;
/** Returns the subject of a key of the state. */
export const stateSubject = (key: string): string => `$KV.${STATE_BUCKET}.${key}`;

export const CONTROLLER = 'controller';

/**
 * Subject prefix of a client's replies. Workers can listen to `_INBOX.*.>`. The controller's prefix is different, because samples and the
 * secret of the tickets arrive there.
 */
export const inboxOf = (name: string): string => (name === CONTROLLER ? '_INBOX-CONTROLLER' : `_INBOX.${name}`);

/**
 * Subjects that workers can publish and subscribe to. They can ask to join, ask for groups, report progress, write samples, and read
 * weights and config. They cannot acknowledge a message, or create a consumer, which could read any message.
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

/** Encodes a text as one token of a subject. */
export const token = (text: string): string =>
  encodeURIComponent(text).replace(/[.*]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);
