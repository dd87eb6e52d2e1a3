/** `webgrpo/mcp`: tools of MCP servers. The SDK (`@modelcontextprotocol/sdk`, installed by the user) is loaded on first use. */

export { type McpOptions, type McpTools, mcpTools } from './tools.ts';
export type { McpCommand, McpStats } from './types.ts';
