// The interop server, written with the TypeScript SDK 2.x: one factory serves both eras.
import { randomUUID } from 'node:crypto';

import { packagesOf } from './scenario.mjs';
import { fromWeb, listen, overHttp } from './serving.mjs';

const load = packagesOf(process.argv[2]);
const {
    McpServer,
    ResourceTemplate,
    WebStandardStreamableHTTPServerTransport,
    acceptedContent,
    completable,
    createMcpHandler,
    inputRequired,
    inputResponse,
    isLegacyRequest
} = load('@modelcontextprotocol/server');
const { serveStdio } = load('@modelcontextprotocol/server/stdio');
const { z } = load('zod');

const STYLES = ['formal', 'casual'];
const STEP_MS = 20;
const PERSON = z.object({ name: z.string(), age: z.number().int() });

const subscribed = new Set();
let cancelledCalls = 0;
let touches = 0;
let grown = false;

const text = value => ({ content: [{ type: 'text', text: value }] });
const asking = request => inputRequired({ inputRequests: { answer: request } });

function sleep(milliseconds, signal) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, milliseconds);
        signal.addEventListener('abort', () => {
            clearTimeout(timer);
            reject(new Error('cancelled'));
        });
    });
}

function addPlainTools(app) {
    app.registerTool(
        'add',
        {
            description: 'Add two numbers.',
            inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
            outputSchema: z.object({ result: z.number().int() })
        },
        ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } })
    );
    app.registerTool('echo', { inputSchema: z.object({ text: z.string() }) }, input => text(input.text));
    app.registerTool('fail', {}, () => {
        throw new Error('deliberate failure');
    });
    app.registerTool('count', { inputSchema: z.object({ n: z.number().int() }) }, async ({ n }, ctx) => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (let progress = 1; progress <= n && progressToken !== undefined; progress++) {
            const params = { progressToken, progress, total: n };
            await ctx.mcpReq.notify({ method: 'notifications/progress', params });
            await sleep(STEP_MS, ctx.mcpReq.signal);
        }
        return text(String(n));
    });
    app.registerTool('slow', { inputSchema: z.object({ ms: z.number().int() }) }, async ({ ms }, ctx) => {
        try {
            await sleep(ms, ctx.mcpReq.signal);
        } catch (error) {
            cancelledCalls += 1;
            throw error;
        }
        return text('done');
    });
    app.registerTool('cancelled_calls', {}, () => text(String(cancelledCalls)));
}

function addAskingTools(app) {
    app.registerTool('ask', {}, ctx => {
        const person = acceptedContent(ctx.mcpReq.inputResponses, 'answer', PERSON);
        if (person) return text(`${person.name} is ${person.age}`);
        return asking(inputRequired.elicit({ message: 'Who are you?', requestedSchema: PERSON }));
    });
    app.registerTool('sample', { inputSchema: z.object({ prompt: z.string() }) }, ({ prompt }, ctx) => {
        const answer = inputResponse(ctx.mcpReq.inputResponses, 'answer');
        if (answer.kind === 'sampling') return text(answer.result.content.text);
        const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
        return asking(inputRequired.createMessage({ messages, maxTokens: 100 }));
    });
    app.registerTool('roots', {}, ctx => {
        const answer = inputResponse(ctx.mcpReq.inputResponses, 'answer');
        if (answer.kind === 'roots') return text(answer.roots.map(root => root.uri).join(','));
        return asking(inputRequired.listRoots());
    });
}

const addGrown = app => app.registerTool('grown', {}, () => text('grown'));

function addTellingTools(app, era) {
    app.registerTool('touch', {}, async () => {
        touches += 1;
        const wanted = era === 'modern' || subscribed.has('test://counter');
        if (perRequest(era)) modern.notify.resourceUpdated('test://counter');
        else if (wanted) await app.server.sendResourceUpdated({ uri: 'test://counter' });
        return text('touched');
    });
    const entry = z.object({ level: z.string(), message: z.string() });
    app.registerTool('log', { inputSchema: entry }, async ({ level, message }, ctx) => {
        await ctx.mcpReq.log(level, message);
        return text('logged');
    });
    app.registerTool('grow', {}, () => {
        grown = true;
        if (perRequest(era)) modern.notify.toolsChanged();
        else addGrown(app);
        return text('grew');
    });
    if (grown) addGrown(app);
}

function addResources(app, era) {
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
    if (era === 'modern') return;
    app.server.setRequestHandler('resources/subscribe', ({ params }) => {
        subscribed.add(params.uri);
        return {};
    });
    app.server.setRequestHandler('resources/unsubscribe', ({ params }) => {
        subscribed.delete(params.uri);
        return {};
    });
}

function addPrompt(app) {
    const style = completable(z.string(), value => STYLES.filter(one => one.startsWith(value))).optional();
    app.registerPrompt('greet', { argsSchema: z.object({ name: z.string(), style }) }, input => {
        const greeting = input.style === 'casual' ? `Hi ${input.name}!` : `Good day, ${input.name}.`;
        return { messages: [{ role: 'user', content: { type: 'text', text: greeting } }] };
    });
}

// Over HTTP a stateless request has a server of its own: who listens is known to the handler alone.
const perRequest = era => overHttp && era === 'modern';

function makeServer({ era }) {
    const app = new McpServer(
        { name: 'interop', version: '1.0.0' },
        { instructions: 'Interop test server.', capabilities: { logging: {}, resources: { subscribe: true } } }
    );
    addPlainTools(app);
    addAskingTools(app);
    addTellingTools(app, era);
    addResources(app, era);
    addPrompt(app);
    return app;
}

const modern = createMcpHandler(makeServer, { legacy: 'reject' });

if (overHttp) {
    // The handler serves the older era without sessions, in which it cannot ask the client; a transport can.
    const legacy = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: randomUUID });
    await makeServer({ era: 'legacy' }).connect(legacy);
    const serve = async request =>
        (await isLegacyRequest(request)) ? legacy.handleRequest(request) : modern.fetch(request);
    listen(fromWeb(serve));
} else {
    serveStdio(makeServer);
}
