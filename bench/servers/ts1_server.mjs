// Contestant: the official TypeScript SDK, 1.x.
import { empty, load, offering, options, serveSessions } from './catalogue.mjs';

const { McpServer } = await load('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = await load('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = await load('@modelcontextprotocol/sdk/server/streamableHttp.js');
const z = await load('zod');

const chosen = options();
const offer = offering(z, fields => fields, chosen);

if (chosen.transport === 'stdio') await offer(empty(McpServer)).connect(new StdioServerTransport());
else
    serveSessions(async told => {
        const transport = new StreamableHTTPServerTransport(told);
        await offer(empty(McpServer)).connect(transport);
        return transport;
    }, chosen);
