// The exercise both TypeScript clients run: the JavaScript twin of scenario.py.
// A client program gives a `connect(target, heard)` that resolves to a session; `main` prints one JSON object.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

const FEATURE_SECONDS = 30;
const ROOT = 'file:///tmp';
const UNICODE = 'naïve 🚀\nsecond\tline \u2028 end';
const LARGE = 300_000;
const PARALLEL = 20;
const PERSON = { name: 'Ada', age: 36 };

// Packages live in the peer's own folder, which is the first argument of every program here.
export function packagesOf(folder) {
    return createRequire(join(folder, 'package.json'));
}

export function sleep(milliseconds) {
    return new Promise(resolve => setTimeout(resolve, milliseconds));
}

// What the client's own handlers received.
export class Heard {
    elicitations = [];
    samplings = [];
    logs = [];
    updates = [];
    toolChanges = [];

    elicitation({ message, requestedSchema }) {
        const fields = {};
        for (const [name, property] of Object.entries(requestedSchema.properties)) fields[name] = property.type;
        this.elicitations.push({ message, fields, required: [...(requestedSchema.required ?? [])].sort() });
        return { action: 'accept', content: { ...PERSON } };
    }

    sampling({ messages, maxTokens }) {
        const said = messages.map(message => [message.role, message.content.text]);
        this.samplings.push({ messages: said, maxTokens });
        const text = `model says: ${said.at(-1)[1]}`;
        return { role: 'assistant', model: 'test', content: { type: 'text', text } };
    }

    roots() {
        return { roots: [{ uri: ROOT }] };
    }

    log({ level, data }) {
        this.logs.push([level, data]);
    }
}

async function waitUntil(condition, seconds = 5) {
    for (let tries = 0; tries < seconds * 50 && !condition(); tries++) await sleep(20);
}

async function codeOf(session, request) {
    try {
        const result = await request;
        return result.isError ? 'isError' : null;
    } catch (error) {
        return session.errorCode(error);
    }
}

const textOf = result => result.content[0].text;

const FEATURES = {
    protocol: session => session.protocolVersion(),
    server: session => session.server(),
    async ping(session) {
        await session.ping();
        return 'pong';
    },
    tools: async session => (await session.toolNames()).sort(),
    resources: async session => (await session.resourceUris()).sort(),
    templates: async session => (await session.templateUris()).sort(),
    prompts: session => session.prompts(),
    async add(session) {
        const result = await session.call('add', { a: 2, b: 3 });
        return { text: textOf(result), structured: result.structuredContent ?? null };
    },
    echo: async session => textOf(await session.call('echo', { text: UNICODE })),
    large: async session => textOf(await session.call('echo', { text: 'x'.repeat(LARGE) })).length,
    async parallel(session) {
        const texts = Array.from({ length: PARALLEL }, (_, number) => `call ${number}`);
        const results = await Promise.all(texts.map(text => session.call('echo', { text })));
        return results.every((result, number) => textOf(result) === texts[number]);
    },
    unknown_tool: session => codeOf(session, session.call('no_such_tool', {})),
    async fail(session) {
        const result = await session.call('fail', {});
        return { isError: result.isError === true, saysWhy: textOf(result).includes('deliberate failure') };
    },
    async progress(session) {
        const values = [];
        const onprogress = ({ progress, total }) => values.push([progress, total ?? null]);
        const result = await session.call('count', { n: 3 }, { onprogress });
        await waitUntil(() => values.length >= 3);
        return { values, result: textOf(result) };
    },
    async cancel(session) {
        const stop = new AbortController();
        const call = session.call('slow', { ms: 60_000 }, { signal: stop.signal }).catch(() => undefined);
        await sleep(300);
        stop.abort('no longer needed');
        await call;
        for (let tries = 0; tries < 50; tries++) {
            const count = textOf(await session.call('cancelled_calls', {}));
            if (count !== '0') return Number(count);
            await sleep(100);
        }
        return 0;
    },
    async elicit(session, heard) {
        const answer = textOf(await session.call('ask', {}));
        return { answer, asked: heard.elicitations };
    },
    async sample(session, heard) {
        const answer = textOf(await session.call('sample', { prompt: 'hi' }));
        return { answer, asked: heard.samplings };
    },
    roots: async session => textOf(await session.call('roots', {})),
    async read_static(session) {
        const { mimeType, text } = await session.read('test://static');
        return { mimeType, text };
    },
    read_binary: async session => Buffer.from((await session.read('test://binary')).blob, 'base64').toString('hex'),
    read_template: async session => (await session.read('test://items/42')).text,
    read_missing: session => codeOf(session, session.read('test://missing')),
    async prompt(session) {
        const formal = await session.prompt('greet', { name: 'Ada' });
        const casual = await session.prompt('greet', { name: 'Ada', style: 'casual' });
        return [...formal, ...casual].map(message => [message.role, message.content.text]);
    },
    async completion(session) {
        return [await session.complete('greet', 'style', ''), await session.complete('greet', 'style', 'c')];
    },
    async subscribe(session, heard) {
        const end = await session.subscribe('test://counter');
        await session.call('touch', {});
        await waitUntil(() => heard.updates.length > 0);
        await sleep(100);
        await end();
        return { updates: heard.updates, read: (await session.read('test://counter')).text };
    },
    async log(session, heard) {
        await session.setLogLevel('info');
        await session.call('log', { level: 'debug', message: 'quiet' });
        await session.call('log', { level: 'warning', message: 'watch out' });
        await waitUntil(() => heard.logs.length > 0);
        return heard.logs;
    },
    async list_changed(session, heard) {
        const before = new Set(await session.toolNames());
        const end = await session.watchTools();
        await session.call('grow', {});
        await waitUntil(() => heard.toolChanges.length > 0);
        await end();
        const added = (await session.toolNames()).filter(name => !before.has(name)).sort();
        return { notified: heard.toolChanges.length > 0, added };
    }
};

const oneSentence = error => `${error?.constructor?.name ?? 'Error'}: ${error?.message ?? error}`;

async function withinTime(work) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`no answer within ${FEATURE_SECONDS} s`)), FEATURE_SECONDS * 1000);
    });
    try {
        return await Promise.race([work(), late]);
    } finally {
        clearTimeout(timer);
    }
}

async function exercise(session, heard) {
    const observed = {};
    for (const [name, feature] of Object.entries(FEATURES)) {
        if (name === 'ping' && session.protocolVersion() >= '2026') continue;
        try {
            observed[name] = await withinTime(async () => feature(session, heard));
        } catch (error) {
            observed[name] = { error: oneSentence(error) };
        }
    }
    return observed;
}

function parseTarget() {
    const options = { mode: { type: 'string' }, version: { type: 'string' }, url: { type: 'string' } };
    const { values, positionals } = parseArgs({ args: process.argv.slice(3), options, allowPositionals: true });
    const { mode, version, url } = values;
    if (!['legacy', 'modern', 'auto'].includes(mode) || (positionals.length === 0) === (url === undefined)) {
        throw new Error('usage: FOLDER --mode legacy|modern|auto [--version V] --url URL | -- COMMAND...');
    }
    return { command: positionals[0], args: positionals.slice(1), mode, version, url };
}

// The one JSON object is all that may reach stdout; an SDK that prints there is sent to stderr.
const quietStdout = () => Object.assign(console, { log: console.error, debug: console.error, info: console.error });

export async function main(connect) {
    quietStdout();
    const target = parseTarget();
    const heard = new Heard();
    let observed = {};
    try {
        const session = await withinTime(() => connect(target, heard));
        observed = { connect: 'connected', ...(await exercise(session, heard)) };
        await withinTime(() => session.close());
    } catch (error) {
        observed[observed.connect ? 'close' : 'connect'] = { error: oneSentence(error) };
    }
    process.stdout.write(JSON.stringify(observed), () => process.exit(0));
}
