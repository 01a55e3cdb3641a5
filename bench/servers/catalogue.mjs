// What both TypeScript servers of the benchmark offer, the command line they share, and where their packages are.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const home = pathToFileURL(process.env.BENCH_PEER_HOME + '/').href;

/** Import a package of the peer under test. */
export const load = name => import(import.meta.resolve(name, home));

/** Read the command line of a benchmark server. */
export function options() {
    const { values } = parseArgs({
        options: {
            transport: { type: 'string', default: 'stdio' },
            port: { type: 'string', default: '0' },
            mode: { type: 'string' },
            tools: { type: 'string', default: '0' },
            more: { type: 'boolean', default: false },
        },
    });
    return { ...values, port: Number(values.port), tools: Number(values.tools) };
}

/** Serve HTTP the cheapest way there is, on bare node:http; connections may come all at once. */
export const serveHttp = (handle, port) => createServer(handle).listen(port, '127.0.0.1', 4096);

/** Serve sessions: `open` makes a server and the transport of one, given what that transport has to be told. */
export function serveSessions(open, { port, mode }) {
    const transports = new Map();
    serveHttp(async (request, response) => {
        const id = request.headers['mcp-session-id'];
        if (id && !transports.has(id)) return response.writeHead(404).end();
        const transport =
            transports.get(id) ??
            (await open({
                sessionIdGenerator: () => randomUUID(),
                enableJsonResponse: mode === 'session-json',
                onsessioninitialized: opened => void transports.set(opened, transport),
            }));
        return transport.handleRequest(request, response);
    }, port);
}

const URI = 'bench://static';
const TEXT = 'The same text at every reading. '.repeat(5);

const answer = value => ({ content: [{ type: 'text', text: String(value) }], structuredContent: { result: value } });
const sum = ({ a, b }) => answer(a + b);
const sumLater = async ({ a, b }) => answer(a + b);
const repeat = async ({ text }) => answer(text);
const give = async ({ query }) => answer(query);

const RECORDS = Array.from({ length: 1000 }, (_, number) => ({
    number,
    name: `entry number ${number}`,
    score: number * 1.5,
    tags: ['alpha', 'beta', `t${number}`],
}));
const NOTED = RECORDS.map(record => ({ ...record, note: null }));
const list = values => ({
    content: [{ type: 'text', text: JSON.stringify(values) }],
    structuredContent: { result: values },
});

/** Report progress so many times. */
async function step({ count }, context) {
    // The two generations of the SDK put the same two things in different places.
    const { _meta, notify: send } = context.mcpReq ?? context;
    const notify = send ?? context.sendNotification;
    for (let progress = 1; progress <= count; progress++)
        await notify({
            method: 'notifications/progress',
            params: { progressToken: _meta.progressToken, progress, total: count },
        });
    return answer('ok');
}

async function sleep({ ms }) {
    await new Promise(resolve => setTimeout(resolve, ms));
    return answer('ok');
}

const joined = new Set();

/** Offer what makes updates and lets a session hear of them; `update` tells those who listen otherwise. */
function offerUpdates(server, update) {
    server.registerTool('join', {}, async () => (joined.add(server.server), answer('ok')));
    server.registerTool('bump', {}, async () => {
        update(URI);
        for (const session of joined) session.sendResourceUpdated({ uri: URI });
        return answer('ok');
    });
}

/**
 * Give a function that offers the benchmark's tools and its resource on a server; `object` makes a schema of named
 * fields. Schemas are made once, for an SDK may want a new server for every request.
 */
export function offering(z, object, { tools: extraTools, more }, update = () => {}) {
    const numbers = object({ a: z.number().int(), b: z.number().int() });
    const number = object({ result: z.number().int() });
    const text = object({ text: z.string() });
    const string = object({ result: z.string() });
    const query = object({
        query: z.string(),
        limit: z.number().int().default(10),
        exact: z.boolean().default(false),
        labels: z.array(z.string()).optional(),
    });

    const record = { number: z.number().int(), name: z.string(), score: z.number(), tags: z.array(z.string()) };
    const records = object({ result: z.array(z.object(record)) });
    const noted = object({ result: z.array(z.object({ ...record, note: z.string().nullable() })) });
    const duration = object({ ms: z.number().int() });
    const count = object({ count: z.number().int() });
    const nothing = object({});

    return server => {
        const tool = (name, description, inputSchema, outputSchema, handler) =>
            server.registerTool(name, { description, inputSchema, outputSchema }, handler);

        tool('add', 'Add two integers.', numbers, number, sumLater);
        tool('add_sync', 'Add two integers in a plain function.', numbers, number, sum);
        tool('echo', 'Give the text back.', text, string, repeat);
        // A long list has exactly the tools it was asked for.
        if (!extraTools) offerUpdates(server, update);
        if (more) {
            tool('records', 'Return a thousand records.', nothing, records, async () => list(RECORDS));
            tool('records_null', 'Return a thousand records without notes.', nothing, noted, async () => list(NOTED));
            tool('wait', 'Answer later.', duration, string, sleep);
            tool('steps', 'Report progress so many times.', count, string, step);
        }
        for (let i = 0; i < extraTools; i++)
            tool(
                `look_up_${String(i).padStart(4, '0')}`,
                `Look something up in collection ${i}.\n\nGives the first entries that fit the query, as text.`,
                query,
                string,
                give,
            );
        server.registerResource('static', URI, {}, async () => ({ contents: [{ uri: URI, text: TEXT }] }));
        return server;
    };
}

/** Make an empty server, with the class of the SDK under test. */
export const empty = McpServer =>
    new McpServer({ name: 'bench', version: '1' }, { capabilities: { resources: { subscribe: true } } });
