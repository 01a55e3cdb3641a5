// A page whose origin the server allows: both eras with fetch, the HTTP+SSE pair with EventSource.
import { observe, server } from './observing.mjs';

const HANDSHAKE = '2025-11-25';
const STATELESS = '2026-07-28';
const META = 'io.modelcontextprotocol/';
const INTRODUCTION = { protocolVersion: HANDSHAKE, capabilities: {}, clientInfo: { name: 'page', version: '1' } };

let lastId = 0;
let session;

const request = (method, params) => ({ jsonrpc: '2.0', id: ++lastId, method, params });

function post(url, message, headers = {}, signal = undefined) {
    const both = 'application/json, text/event-stream';
    const body = JSON.stringify(message);
    return fetch(url, { method: 'POST', headers: { 'Content-Type': 'application/json', Accept: both, ...headers }, body, signal });
}

const inSession = (message, id = session) =>
    post(`${server}/mcp`, message, { 'Mcp-Session-Id': id, 'Mcp-Protocol-Version': HANDSHAKE });

function alone(name, args, { headers = {}, meta = {}, signal } = {}) {
    const _meta = { [`${META}protocolVersion`]: STATELESS, [`${META}clientCapabilities`]: {}, ...meta };
    const mirrored = { 'Mcp-Protocol-Version': STATELESS, 'Mcp-Method': 'tools/call', 'Mcp-Name': name, ...headers };
    return post(`${server}/mcp`, request('tools/call', { name, arguments: args, _meta }), mirrored, signal);
}

const kind = response => response.headers.get('Content-Type');
const textOf = message => message.result.content[0].text;

async function* messagesOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffered = '';
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const events = (buffered + value).split('\n\n');
        buffered = events.pop();
        for (const event of events) {
            const data = /^data: ?(.+)$/m.exec(event);
            if (data) yield JSON.parse(data[1]);
        }
    }
}

// The tool goes on only when the page, which must have read the first step by then, tells it to.
async function streamed(response, release) {
    const steps = [];
    for await (const message of messagesOf(response)) {
        if (message.id !== undefined) return { kind: kind(response), steps, text: textOf(message) };
        steps.push(message.params.progress);
        if (steps.length === 1) await release();
    }
    return 'the stream ended without the answer';
}

// An answer that takes its time comes as a stream.
async function answerOf(response) {
    if (kind(response) === 'application/json') return response.json();
    for await (const message of messagesOf(response)) if (message.id !== undefined) return message;
    throw new Error('the stream ended without the answer');
}

function next(events, name) {
    return new Promise((resolve, reject) => {
        events.addEventListener(name, ({ data }) => resolve(data), { once: true });
        events.addEventListener('error', () => reject(new Error('the stream failed')), { once: true });
    });
}

await observe({
    async initialize() {
        const response = await post(`${server}/mcp`, request('initialize', INTRODUCTION));
        session = response.headers.get('Mcp-Session-Id');
        const { result } = await response.json();
        return { status: response.status, version: result.protocolVersion, hasSession: session !== null };
    },
    initialized: async () => (await inSession({ jsonrpc: '2.0', method: 'notifications/initialized' })).status,
    async call() {
        const response = await inSession(request('tools/call', { name: 'add', arguments: { a: 2, b: 3 } }));
        return { kind: kind(response), text: textOf(await response.json()) };
    },
    async stream() {
        const params = { name: 'count', arguments: {}, _meta: { progressToken: 'steps' } };
        const response = await inSession(request('tools/call', params));
        return streamed(response, () => inSession(request('tools/call', { name: 'release', arguments: {} })));
    },
    async unknown_session() {
        const response = await inSession(request('ping', {}), 'nobody');
        return { status: response.status, isReadable: 'error' in (await response.json()) };
    },
    async goodbye() {
        const headers = { 'Mcp-Session-Id': session, 'Mcp-Protocol-Version': HANDSHAKE };
        const gone = await fetch(`${server}/mcp`, { method: 'DELETE', headers });
        return [gone.ok, (await inSession(request('ping', {}))).status];
    },
    async stateless_call() {
        const response = await alone('add', { a: 2, b: 3 });
        const { result } = await response.json();
        return { kind: kind(response), resultType: result.resultType, text: result.content[0].text };
    },
    stateless_argument_header: async () =>
        textOf(await (await alone('weather', { city: 'Rome' }, { headers: { 'Mcp-Param-City': 'Rome' } })).json()),
    async stateless_wrong_header() {
        const response = await alone('add', { a: 2, b: 3 }, { headers: { 'Mcp-Name': 'count' } });
        return { status: response.status, code: (await response.json()).error.code };
    },
    async stateless_stream() {
        return streamed(await alone('count', {}, { meta: { progressToken: 'steps' } }), () => alone('release', {}));
    },
    async stateless_abort() {
        const stop = new AbortController();
        const response = await alone('wait', {}, { meta: { progressToken: 'steps' }, signal: stop.signal });
        stop.abort();
        const failed = await response.text().catch(error => error.name);
        return { failed, server: textOf(await answerOf(await alone('was_cancelled', {}))) };
    },
    async event_source() {
        const events = new EventSource(`${server}/sse`);
        const place = new URL(await next(events, 'endpoint'), server);
        const ask = async message => {
            const heard = next(events, 'message');
            return [(await post(place, message)).status, JSON.parse(await heard)];
        };
        const [status, { result }] = await ask(request('initialize', INTRODUCTION));
        await post(place, { jsonrpc: '2.0', method: 'notifications/initialized' });
        const [, answer] = await ask(request('tools/call', { name: 'add', arguments: { a: 2, b: 3 } }));
        events.close();
        return { status, version: result.protocolVersion, text: textOf(answer) };
    }
});
