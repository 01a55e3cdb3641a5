// The interop client of the TypeScript SDK 1.x over HTTP+SSE; the command is the address of the stream.
import { packagesOf } from './scenario.mjs';

const load = packagesOf(process.argv[2]);
const { SSEClientTransport } = load('@modelcontextprotocol/sdk/client/sse.js');

// The client program builds on the stdio transport: it gets this one in its place, and is otherwise as it is.
load('@modelcontextprotocol/sdk/client/stdio.js').StdioClientTransport = class extends SSEClientTransport {
    constructor({ command }) {
        super(new URL(command));
    }
};

await import('./ts1_client.mjs');
