/**
 * Programs use it as `webgrpo/mcp`, the command line for `task.mcpServers`. It adds tools of MCP servers; the SDK
 * (`@modelcontextprotocol/sdk`, installed by the user) is loaded on first use.
 */

export { type McpOptions, type McpTools, mcpTools } from './tools.ts';
export type { McpCommand, McpStats } from './types.ts';
