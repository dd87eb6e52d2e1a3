/**
 * What a room has on its NATS server, by name, and which of it whom the server lets use. One account of a server holds one room.
 * Every client is an account's user: the controller may do anything, a holder of the join code may only ask to join, and a
 * worker that was let in has the rights of `workerRights` under a key of its own.
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
  workers: 'workers',
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

/**
 * Subject prefix of a user's replies: others may not listen there. Workers that share a user may listen to `_INBOX.*.>`, of which the
 * controller's is none: samples and the secret of the tickets arrive there.
 */
export const inboxOf = (user: string): string => (user === CONTROLLER ? '_INBOX-CONTROLLER' : `_INBOX.${user}`);

/** Subjects that a user may publish to and subscribe to. */
export interface Rights {
  publish: string[];
  subscribe: string[];
}

/** Rights of the holders of the join code. */
export const JOIN_RIGHTS: Rights = { publish: [JOIN], subscribe: [`${inboxOf('join')}.>`] };

/**
 * Rights of a worker: it takes groups from the queue and reports progress, writes samples under its own name, reads weights and what the
 * room is. It can make no consumer, which would read what it likes.
 * @param worker its public key; '*' = of all workers that share a user, who ask to join under it as well
 */
export function workerRights(worker: string): Rights {
  const { stream, consumer } = PROMPTS;
  return {
    publish: [
      ...(worker === '*' ? JOIN_RIGHTS.publish : []),
      SAMPLES.subjectOf(worker, '').concat('*'),
      statusSubject(worker),
      `$JS.API.CONSUMER.INFO.${stream}.${consumer}`,
      `$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`,
      `$JS.ACK.${stream}.${consumer}.>`,
      `$JS.API.DIRECT.GET.${weightsStream}`,
      `$JS.API.DIRECT.GET.${weightsStream}.>`,
      ...[STATE.room, STATE.version].map((key) => `$JS.API.DIRECT.GET.${stateStream}.${stateSubject(key)}`),
    ],
    subscribe: [`${inboxOf(worker)}.>`, NOTICES],
  };
}

/** A text as one token of a subject. */
export const token = (text: string): string =>
  encodeURIComponent(text).replace(/[.*]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);
