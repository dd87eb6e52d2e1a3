/**
 * The groups that a room's controller offers, and which worker has leased which group. Only the controller changes this list, so no worker
 * can take, end or keep another worker's group.
 */

export interface LeaseLimits {
  /** A lease ends if the worker has not reported for this many milliseconds. Another worker can then take the group. */
  silentMs: number;
  /**
   * A lease ends after this many milliseconds even if the worker still reports. Another worker can then take the group. The first valid
   * sample counts, whichever worker sends it.
   */
  deadlineMs: number;
  /** Maximum number of groups that one worker can have at the same time. */
  maxHeld: number;
}

interface Lease {
  takenAt: number;
  heardAt: number;
}

interface Offer {
  prompt: string;
  /** True while samples of the group are missing. */
  isWanted: boolean;
  /** Number of workers that can have the group at the same time, to compare their samples. */
  copies: number;
  /** Leases of the group by worker, including those that have ended. */
  leases: Map<string, Lease>;
}

/** Leases groups to workers, in the order in which the groups were first offered. The caller passes the current time in milliseconds. */
export class Leases {
  readonly #limits: LeaseLimits;
  readonly #offers = new Map<string, Offer>();

  constructor(limits: LeaseLimits) {
    this.#limits = limits;
  }

  /**
   * Offers a group to the workers. If it was offered before, replaces the prompt and drops all leases.
   * @param copies number of workers that can have the group at the same time
   */
  offer(uid: string, prompt: string, copies = 1): void {
    this.#offers.set(uid, { prompt, isWanted: true, copies, leases: new Map() });
  }

  /** Removes a group. Returns true if a worker is still generating it. */
  end(uid: string, now: number): boolean {
    const offer = this.#offers.get(uid);
    this.#offers.delete(uid);
    return offer !== undefined && this.#live(offer.leases, now).length > 0;
  }

  /**
   * Sets whether samples of the group are missing. If none is, no worker can take the group, and it does not count towards a worker's
   * limit.
   */
  want(uid: string, isWanted: boolean): void {
    const offer = this.#offers.get(uid);
    if (offer) offer.isWanted = isWanted;
  }

  /**
   * Leases a group to a worker and returns its prompt; undefined if this worker can have no group now. A worker whose lease of a group has
   * ended gets this group again only if all `others` have had it, too. Groups for two workers are given to a second one only if no other
   * group is free.
   */
  take(worker: string, now: number, others: readonly string[] = []): string | undefined {
    if (this.heldBy(worker, now) >= this.#limits.maxHeld) return undefined;
    const isFree = ({ isWanted, leases, ...offer }: Offer, copy: number) => {
      if (!isWanted || copy >= offer.copies || this.#live(leases, now).length !== copy) return false;
      return !leases.has(worker) || (copy === 0 && others.every((other) => leases.has(other)));
    };
    const offers = [...this.#offers.values()];
    const free = offers.find((offer) => isFree(offer, 0)) ?? offers.find((offer) => isFree(offer, 1));
    free?.leases.set(worker, { takenAt: now, heardAt: now });
    return free?.prompt;
  }

  /** Renews leases: the worker has reported that it is still generating these groups. */
  heard(worker: string, uids: readonly string[], now: number): void {
    for (const uid of uids) {
      const lease = this.#offers.get(uid)?.leases.get(worker);
      if (lease) lease.heardAt = now;
    }
  }

  /** Ends all leases of a worker that has left or was excluded. */
  leave(worker: string): void {
    for (const { leases } of this.#offers.values()) leases.delete(worker);
  }

  /** Returns the number of groups that a worker is generating now. */
  heldBy(worker: string, now: number): number {
    const offers = [...this.#offers.values()];
    return offers.filter(({ isWanted, leases }) => isWanted && this.#isLive(leases.get(worker), now)).length;
  }

  /** Returns the workers that are generating a group now. */
  workersOf(uid: string, now: number): string[] {
    return this.#live(this.#offers.get(uid)?.leases ?? new Map<string, Lease>(), now);
  }

  #live(leases: Offer['leases'], now: number): string[] {
    return [...leases.keys()].filter((worker) => this.#isLive(leases.get(worker), now));
  }

  #isLive(lease: Lease | undefined, now: number): boolean {
    const { silentMs, deadlineMs } = this.#limits;
    return lease !== undefined && now - lease.heardAt <= silentMs && now - lease.takenAt <= deadlineMs;
  }
}
