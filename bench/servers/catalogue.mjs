// What both TypeScript servers of the benchmark offer, the command line they share, and where their packages are.
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const home = pathToFileURL(process.env.BENCH_PEER_HOME + '/').href;

/** Import a package of the peer under test. */
export const load = name => import(import.meta.resolve(name, home));

/** Read the command line of a benchmark server. */
export function options() {
    const { values } = parseArgs({
        options: { transport: { type: 'string', default: 'stdio' }, tools: { type: 'string', default: '0' } },
    });
    if (values.transport !== 'stdio') throw new Error(`no such transport here: ${values.transport}`);
    return { transport: values.transport, tools: Number(values.tools) };
}

const URI = 'bench://static';
const TEXT = 'The same text at every reading. '.repeat(5);

const answer = value => ({ content: [{ type: 'text', text: String(value) }], structuredContent: { result: value } });
const sum = ({ a, b }) => answer(a + b);
const sumLater = async ({ a, b }) => answer(a + b);
const repeat = async ({ text }) => answer(text);
const give = async ({ query }) => answer(query);

/** Offer the benchmark's tools and its resource on a server; `object` makes a schema of named fields. */
export function offer(server, z, object, extraTools) {
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
    const tool = (name, description, inputSchema, outputSchema, handler) =>
        server.registerTool(name, { description, inputSchema, outputSchema }, handler);

    tool('add', 'Add two integers.', numbers, number, sumLater);
    tool('add_sync', 'Add two integers in a plain function.', numbers, number, sum);
    tool('echo', 'Give the text back.', text, string, repeat);
    for (let i = 0; i < extraTools; i++)
        tool(
            `look_up_${String(i).padStart(4, '0')}`,
            `Look something up in collection ${i}.\n\nGives the first entries that fit the query, as text.`,
            query,
            string,
            give,
        );
    server.registerResource('static', URI, {}, async () => ({ contents: [{ uri: URI, text: TEXT }] }));
}
