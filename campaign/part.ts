/** What a part of the campaign gives: one row for each kind of fault, with how many were tried and how many came out wrong. */

export interface CampaignOptions {
  /** Everything that a part draws follows from it. */
  seed: number;
  /** False: a form of about ten seconds, which `npm test -- --full` runs. */
  full: boolean;
  /** Progress, on standard error. */
  say(line: string): void;
}

export interface CampaignRow {
  /** The fault and what had to hold, as docs/lab/reliability.md prints it. */
  what: string;
  tried: number;
  /** Lost, wrong, silent or hanging; the aim is 0. */
  wrong: number;
  /** What was counted besides, in a few words. */
  note?: string;
  /** One line for each that went wrong, with what shows it again. */
  failures: string[];
}

export interface CampaignPart {
  /** Name for `--only`. */
  name: string;
  run(options: CampaignOptions): Promise<CampaignRow[]>;
}
