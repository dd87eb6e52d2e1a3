/**
 * The groups that a room's controller hands out, and which worker has which. Only the controller changes the list, so no worker can take,
 * end or keep a group of another.
 */

export interface LeaseLimits {
  /** Milliseconds without a sign of life of the group's worker after which another worker can take the group. */
  silentMs: number;
  /** Milliseconds after which another worker can take a group even if its worker still answers. The first valid sample wins, whichever worker sent it. */
  deadlineMs: number;
  /** Maximum number of groups of one worker at the same time. */
  maxHeld: number;
}

interface Lease {
  takenAt: number;
  heardAt: number;
}

interface Offer {
  prompt: string;
  /** True if samples of the group are missing. */
  isWanted: boolean;
  /** Number of workers that can have the group at the same time. */
  copies: number;
  /** Leases by worker, including expired ones. */
  leases: Map<string, Lease>;
}

/** Hands out groups in the order in which they were first offered. Times are in milliseconds of the caller's clock. */
export class Leases {
  readonly #limits: LeaseLimits;
  readonly #offers = new Map<string, Offer>();

  constructor(limits: LeaseLimits) {
    this.#limits = limits;
  }

  /** Offers a group to all workers, or offers it again with another prompt. @param copies number of workers that can have it at a time */
  offer(uid: string, prompt: string, copies = 1): void {
    this.#offers.set(uid, { prompt, isWanted: true, copies, leases: new Map() });
  }

  /** Ends a group. Returns true if a worker still generates it. */
  end(uid: string, now: number): boolean {
    const offer = this.#offers.get(uid);
    this.#offers.delete(uid);
    return offer !== undefined && this.#live(offer.leases, now).length > 0;
  }

  /** Tells whether samples of the group are missing. If not, no worker can take it, and it does not count for its worker. */
  want(uid: string, isWanted: boolean): void {
    const offer = this.#offers.get(uid);
    if (offer) offer.isWanted = isWanted;
  }

  /**
   * Leases a group to a worker and returns its prompt; undefined if there is none for it now. A worker whose time for a group is over
   * gets that group again only if none of the `others` can. Second copies go out when nothing else is left.
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

  /** Notes a sign of life: the worker still generates these groups. */
  heard(worker: string, uids: readonly string[], now: number): void {
    for (const uid of uids) {
      const lease = this.#offers.get(uid)?.leases.get(worker);
      if (lease) lease.heardAt = now;
    }
  }

  /** Ends all leases of a worker that left or was excluded. */
  leave(worker: string): void {
    for (const { leases } of this.#offers.values()) leases.delete(worker);
  }

  /** Returns the number of groups that a worker has now. */
  heldBy(worker: string, now: number): number {
    const offers = [...this.#offers.values()];
    return offers.filter(({ isWanted, leases }) => isWanted && this.#isLive(leases.get(worker), now)).length;
  }

  /** Returns the workers that generate a group now. */
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
