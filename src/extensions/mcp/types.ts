/** Types without the SDK, because the package's own types must compile without it. */

/** Command that starts a server. */
export interface McpCommand {
  /** Program, found as a shell finds it. */
  command: string;
  /** Arguments, passed without a shell. */
  args?: readonly string[];
  /** Environment variables, in addition to HOME, PATH and the like from this process. */
  env?: Readonly<Record<string, string>>;
  /** Working folder. Default: the folder of this process. */
  cwd?: string;
}

/** Address of a server: a URL, or the command that starts it. */
export type McpServer = URL | McpCommand;

/** Counters over all connections to a server. */
export interface McpStats {
  /** Calls that were sent. */
  calls: number;
  /** Calls that returned an error text. */
  errors: number;
  /** Connections that were opened. */
  connections: number;
  /** Connections that were lost. */
  lost: number;
  /** Number of connections reopened after being lost. */
  reconnects: number;
  /** Server requests that were refused: sampling, elicitation, roots. */
  refusedRequests: number;
  /** `tools/list_changed` notifications. They do not change the tools of a run. */
  listChanged: number;
  /** Progress notifications. */
  progress: number;
  /** Messages that could not be read, or that answer no request. */
  badMessages: number;
}
