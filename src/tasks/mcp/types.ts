/** Types that need no SDK: the package's own compile without it. */

/** How a server is started. */
export interface McpCommand {
  /** A program, found as a shell finds it. */
  command: string;
  /** Its arguments; no shell reads them. */
  args?: readonly string[];
  /** Its environment has these, and of this process's only HOME, PATH and the like. */
  env?: Readonly<Record<string, string>>;
  /** The folder that it starts in; absent = this process's. */
  cwd?: string;
}

/** Where it is. */
export type McpServer = URL | McpCommand;

/** What was counted of all connections to a server. */
export interface McpStats {
  /** Calls that were sent. */
  calls: number;
  /** Those of the calls that gave an error text. */
  errors: number;
  /** Connections that were opened. */
  connections: number;
  /** Connections that were lost. */
  lost: number;
  /** Those opened again after that. */
  reconnects: number;
  /** Requests of the server that were refused: sampling, elicitation, roots. */
  refusedRequests: number;
  /** `tools/list_changed` notifications: the tools of a run stay what they were at its start. */
  listChanged: number;
  /** Progress notifications. */
  progress: number;
  /** Messages that could not be read, or answer nothing that was asked. */
  badMessages: number;
}
