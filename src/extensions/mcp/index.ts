/**
 * Adds the tools of MCP servers to tasks. Programs import it as `webgrpo/mcp`; the command line uses it for `task.mcpServers`. The SDK
 * (`@modelcontextprotocol/sdk`, which the user installs) is loaded when it is first needed.
 */

export { type McpOptions, type McpTools, mcpTools } from './tools.ts';
export type { McpCommand, McpStats } from './types.ts';
