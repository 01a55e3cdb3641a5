// Contestant: the official TypeScript SDK, 2.x.
import { empty, load, offering, options, serveHttp, serveSessions } from './catalogue.mjs';

const { McpServer, createMcpHandler } = await load('@modelcontextprotocol/server');
const { serveStdio } = await load('@modelcontextprotocol/server/stdio');
const z = await load('zod');

const chosen = options();
let handler;
const offer = offering(z, z.object, chosen, uri => handler?.notify.resourceUpdated(uri));
const made = () => offer(empty(McpServer));

if (chosen.transport === 'stdio') serveStdio(made);
else {
    const { NodeStreamableHTTPServerTransport, toNodeHandler } = await load('@modelcontextprotocol/node');
    if (chosen.mode === 'stateless') {
        handler = createMcpHandler(made, { responseMode: 'json' });
        serveHttp(toNodeHandler(handler), chosen.port);
    } else
        serveSessions(async told => {
            const transport = new NodeStreamableHTTPServerTransport(told);
            await made().connect(transport);
            return transport;
        }, chosen);
}
