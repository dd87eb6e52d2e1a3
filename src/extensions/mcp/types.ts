/** Types that do not import the SDK's types, so that the package's declarations compile without the SDK. */

/** Command that starts an MCP server. */
export interface McpCommand {
  /** Name or path of the program. A name is searched on the PATH. */
  command: string;
  /** Arguments of the program. No shell interprets them. */
  args?: readonly string[];
  /** Environment variables of the program, in addition to HOME, PATH and similar ones of this process. */
  env?: Readonly<Record<string, string>>;
  /** Working folder. Default: the working folder of this process. */
  cwd?: string;
}

/** Address of an MCP server: a URL, or the command that starts it. */
export type McpServer = URL | McpCommand;

/** Counters, summed over all connections to a server. */
export interface McpStats {
  /** Number of tool calls. */
  calls: number;
  /** Number of calls that failed or whose text starts with "Error:". */
  errors: number;
  /** Number of connections that were opened. */
  connections: number;
  /** Number of connections that were lost. */
  lost: number;
  /** Number of connections that were opened again after a loss. */
  reconnects: number;
  /** Number of requests by the server that were refused (sampling, elicitation, roots). */
  refusedRequests: number;
  /** Number of `tools/list_changed` notifications. The tools of a run do not change. */
  listChanged: number;
  /** Number of progress notifications from the server. */
  progress: number;
  /** Number of messages that could not be parsed, or that answer no request. */
  badMessages: number;
}
