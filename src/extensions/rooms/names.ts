/**
 * Names of a room's streams, buckets and subjects on its NATS server. One account of a server holds one room and has two users: the controller
 * may do anything, and all workers share the other, with `WORKER_RIGHTS`.
 */

/** Prompt groups, each under its own subject, until a worker has acknowledged them: a work queue. */
export const PROMPTS = {
  stream: 'webgrpo-prompts',
  subjects: 'webgrpo.prompt.*',
  /** The workers' one consumer: a group goes to one of them, and after `ackWaitMs` without a sign of life to the next. */
  consumer: 'workers',
  subjectOf: (uid: string): string => `webgrpo.prompt.${token(uid)}`,
  uidOf: (subject: string): string => decodeURIComponent(subject.split('.')[2]),
};

/** Finished samples, until the controller has them. */
export const SAMPLES = {
  stream: 'webgrpo-samples',
  subjects: 'webgrpo.sample.*.*',
  consumer: 'controller',
  subjectOf: (worker: string, uid: string): string => `webgrpo.sample.${worker}.${token(uid)}`,
  /** Samples of the group by any worker. */
  filterOf: (uid: string): string => `webgrpo.sample.*.${token(uid)}`,
  workerOf: (subject: string): string => subject.split('.')[2],
};

/** Buckets of the object store (the model's files, versions of its weights) and of the key-value store. */
export const WEIGHTS_BUCKET = 'webgrpo-weights';
export const STATE_BUCKET = 'webgrpo-state';

/** Keys of the state; workers read the first two. `secret` keys the tickets of groups; `server` is the one that the consumers were made on. */
export const STATE = {
  room: 'room',
  version: 'version',
  secret: 'secret',
  server: 'server',
} as const;

/** Requests of those who want to join. */
export const JOIN = 'webgrpo.join';
/** The controller tells all workers: new weights, groups that are cancelled. */
export const NOTICES = 'webgrpo.notice';
/** A worker tells how it is doing. */
export const statusSubject = (worker: string): string => `webgrpo.status.${worker}`;
export const STATUSES = 'webgrpo.status.*';

/** Subjects of the streams that hold the buckets, as NATS names them. */
export const weightsStream = `OBJ_${WEIGHTS_BUCKET}`;
export const stateStream = `KV_${STATE_BUCKET}`;
export const stateSubject = (key: string): string => `$KV.${STATE_BUCKET}.${key}`;

export const CONTROLLER = 'controller';

/** Subject prefix of a client's replies. Workers may listen to `_INBOX.*.>`; samples and the secret of the tickets arrive at the controller's. */
export const inboxOf = (name: string): string => (name === CONTROLLER ? '_INBOX-CONTROLLER' : `_INBOX.${name}`);

/**
 * Subjects that workers may publish to and subscribe to: they ask to join, take groups from the queue, report progress, write samples, and read
 * weights and config. They cannot make a consumer, which would read any message.
 */
export const WORKER_RIGHTS = {
  publish: [
    JOIN,
    SAMPLES.subjects,
    STATUSES,
    `$JS.API.CONSUMER.INFO.${PROMPTS.stream}.${PROMPTS.consumer}`,
    `$JS.API.CONSUMER.MSG.NEXT.${PROMPTS.stream}.${PROMPTS.consumer}`,
    `$JS.ACK.${PROMPTS.stream}.${PROMPTS.consumer}.>`,
    `$JS.API.DIRECT.GET.${weightsStream}`,
    `$JS.API.DIRECT.GET.${weightsStream}.>`,
    ...[STATE.room, STATE.version].map((key) => `$JS.API.DIRECT.GET.${stateStream}.${stateSubject(key)}`),
  ],
  subscribe: [`${inboxOf('*')}.>`, NOTICES],
};

/** A text as one token of a subject. */
export const token = (text: string): string =>
  encodeURIComponent(text).replace(/[.*]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);
