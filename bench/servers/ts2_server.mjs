// Contestant: the official TypeScript SDK, 2.x.
import { load, offer, options } from './catalogue.mjs';

const { McpServer } = await load('@modelcontextprotocol/server');
const { serveStdio } = await load('@modelcontextprotocol/server/stdio');
const z = await load('zod');

const { tools } = options();

serveStdio(() => {
    const server = new McpServer({ name: 'bench', version: '1' });
    offer(server, z, z.object, tools);
    return server;
});
