import { gsm8kToolTask } from 'webgrpo';
import { mcpTools } from 'webgrpo/mcp';

const server = { command: 'node_modules/.bin/mcp-server-everything' };
export const { tools, close } = await mcpTools(server, { include: ['get-sum'] });
export const task = { ...gsm8kToolTask(), tools };
