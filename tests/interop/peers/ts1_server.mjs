// The interop server, written with the TypeScript SDK 1.x.
import { randomUUID } from 'node:crypto';

import { packagesOf } from './scenario.mjs';
import { listen, overHttp } from './serving.mjs';

const load = packagesOf(process.argv[2]);
const { McpServer, ResourceTemplate } = load('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = load('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = load('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { completable } = load('@modelcontextprotocol/sdk/server/completable.js');
const { SubscribeRequestSchema, UnsubscribeRequestSchema } = load('@modelcontextprotocol/sdk/types.js');
const { z } = load('zod');

const STYLES = ['formal', 'casual'];
const STEP_MS = 20;
const PERSON = {
    type: 'object',
    properties: { name: { type: 'string' }, age: { type: 'integer' } },
    required: ['name', 'age']
};

const app = new McpServer(
    { name: 'interop', version: '1.0.0' },
    { instructions: 'Interop test server.', capabilities: { logging: {}, resources: { subscribe: true } } }
);
const subscribed = new Set();
let cancelledCalls = 0;
let touches = 0;

const text = value => ({ content: [{ type: 'text', text: value }] });

function sleep(milliseconds, signal) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, milliseconds);
        signal.addEventListener('abort', () => {
            clearTimeout(timer);
            reject(new Error('cancelled'));
        });
    });
}

app.registerTool(
    'add',
    {
        description: 'Add two numbers.',
        inputSchema: { a: z.number().int(), b: z.number().int() },
        outputSchema: { result: z.number().int() }
    },
    ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } })
);
app.registerTool('echo', { inputSchema: { text: z.string() } }, input => text(input.text));
app.registerTool('fail', {}, () => {
    throw new Error('deliberate failure');
});
app.registerTool('count', { inputSchema: { n: z.number().int() } }, async ({ n }, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (let progress = 1; progress <= n && progressToken !== undefined; progress++) {
        const params = { progressToken, progress, total: n };
        await extra.sendNotification({ method: 'notifications/progress', params });
        await sleep(STEP_MS, extra.signal);
    }
    return text(String(n));
});
app.registerTool('slow', { inputSchema: { ms: z.number().int() } }, async ({ ms }, extra) => {
    try {
        await sleep(ms, extra.signal);
    } catch (error) {
        cancelledCalls += 1;
        throw error;
    }
    return text('done');
});
app.registerTool('cancelled_calls', {}, () => text(String(cancelledCalls)));
app.registerTool('ask', {}, async () => {
    const answer = await app.server.elicitInput({ message: 'Who are you?', requestedSchema: PERSON });
    return text(answer.action === 'accept' ? `${answer.content.name} is ${answer.content.age}` : answer.action);
});
app.registerTool('sample', { inputSchema: { prompt: z.string() } }, async ({ prompt }) => {
    const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
    const answer = await app.server.createMessage({ messages, maxTokens: 100 });
    return text(answer.content.text);
});
app.registerTool('roots', {}, async () => text((await app.server.listRoots()).roots.map(root => root.uri).join(',')));
app.registerTool('touch', {}, async () => {
    touches += 1;
    if (subscribed.has('test://counter')) await app.server.sendResourceUpdated({ uri: 'test://counter' });
    return text('touched');
});
const entry = { level: z.string(), message: z.string() };
app.registerTool('log', { inputSchema: entry }, async ({ level, message }, extra) => {
    await app.sendLoggingMessage({ level, data: message }, extra.sessionId);
    return text('logged');
});
app.registerTool('grow', {}, () => {
    app.registerTool('grown', {}, () => text('grown'));
    return text('grew');
});

app.registerResource('static', 'test://static', { mimeType: 'text/plain' }, uri => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'static text' }]
}));
app.registerResource('binary', 'test://binary', { mimeType: 'application/octet-stream' }, uri => {
    const blob = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)).toString('base64');
    return { contents: [{ uri: uri.href, mimeType: 'application/octet-stream', blob }] };
});
app.registerResource('counter', 'test://counter', { mimeType: 'text/plain' }, uri => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: String(touches) }]
}));
const items = new ResourceTemplate('test://items/{id}', { list: undefined });
app.registerResource('item', items, { mimeType: 'text/plain' }, (uri, { id }) => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: `item ${id}` }]
}));
app.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
    subscribed.add(params.uri);
    return {};
});
app.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
    subscribed.delete(params.uri);
    return {};
});

const stylesLike = value => STYLES.filter(style => style.startsWith(value ?? ''));
// This SDK looks for the mark inside an optional argument when it registers a prompt, but outside when it completes.
const style = completable(completable(z.string(), stylesLike).optional(), stylesLike);
const greetArguments = { name: z.string(), style };
app.registerPrompt('greet', { argsSchema: greetArguments }, ({ name, style }) => {
    const greeting = style === 'casual' ? `Hi ${name}!` : `Good day, ${name}.`;
    return { messages: [{ role: 'user', content: { type: 'text', text: greeting } }] };
});

if (overHttp) {
    // One client, so one session: a server of this SDK is connected to one transport.
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID });
    await app.connect(transport);
    listen((request, response) => transport.handleRequest(request, response));
} else {
    await app.connect(new StdioServerTransport());
}
