/** A part of the campaign returns one row for each kind of fault, with the number of cases and the number that went wrong. */

export interface CampaignOptions {
  /** Determines everything random in a part. */
  seed: number;
  /** False = a short form of about ten seconds, which `npm test -- --full` runs. */
  full: boolean;
  /** Prints progress on standard error. */
  say(line: string): void;
}

export interface CampaignRow {
  /** The fault and the expected behaviour, as printed in docs/lab/reliability.md. */
  what: string;
  tried: number;
  /** Number of cases that were lost, wrong, silent or hanging; the goal is 0. */
  wrong: number;
  /** Other counts, as a few words of text. */
  note?: string;
  /** One line for each case that went wrong, with a way to repeat it. */
  failures: string[];
}

export interface CampaignPart {
  /** Name for `--only`. */
  name: string;
  run(options: CampaignOptions): Promise<CampaignRow[]>;
}
