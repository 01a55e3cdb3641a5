// Contestant: the official TypeScript SDK, 1.x.
import { load, offer, options } from './catalogue.mjs';

const { McpServer } = await load('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = await load('@modelcontextprotocol/sdk/server/stdio.js');
const z = await load('zod');

const server = new McpServer({ name: 'bench', version: '1' });
offer(server, z, fields => fields, options().tools);
await server.connect(new StdioServerTransport());
