// The interop client, written with the TypeScript SDK 2.x.
import { main, packagesOf } from './scenario.mjs';

const load = packagesOf(process.argv[2]);
const { Client, LOG_LEVEL_META_KEY, StreamableHTTPClientTransport } = load('@modelcontextprotocol/client');
const { StdioClientTransport } = load('@modelcontextprotocol/client/stdio');

function session(client) {
    const modern = client.getProtocolEra() === 'modern';
    let meta;
    const listen = async filter => {
        const subscription = await client.listen(filter);
        return () => subscription.close();
    };
    return {
        protocolVersion: () => client.getNegotiatedProtocolVersion(),
        server: () => ({ name: client.getServerVersion()?.name ?? null, instructions: client.getInstructions() ?? null }),
        ping: () => client.ping(),
        toolNames: async () => (await client.listTools()).tools.map(tool => tool.name),
        resourceUris: async () => (await client.listResources()).resources.map(resource => resource.uri),
        templateUris: async () =>
            (await client.listResourceTemplates()).resourceTemplates.map(template => template.uriTemplate),
        async prompts() {
            const { prompts } = await client.listPrompts();
            const named = prompts.map(prompt => [prompt.name, (prompt.arguments ?? []).map(argument => argument.name)]);
            return Object.fromEntries(named);
        },
        call: (name, args, options) => client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) }, options),
        read: async uri => (await client.readResource({ uri })).contents[0],
        prompt: async (name, args) => (await client.getPrompt({ name, arguments: args })).messages,
        async complete(name, argument, value) {
            const ref = { type: 'ref/prompt', name };
            return (await client.complete({ ref, argument: { name: argument, value } })).completion.values;
        },
        async setLogLevel(level) {
            if (modern) meta = { [LOG_LEVEL_META_KEY]: level };
            else await client.setLoggingLevel(level);
        },
        async subscribe(uri) {
            if (modern) return listen({ resourceSubscriptions: [uri] });
            await client.subscribeResource({ uri });
            return () => client.unsubscribeResource({ uri });
        },
        watchTools: async () => (modern ? listen({ toolsListChanged: true }) : async () => undefined),
        errorCode: error => error.code ?? null,
        close: () => client.close()
    };
}

async function connect({ command, args, mode, version, url }, heard) {
    const negotiation = mode === 'modern' ? { pin: version ?? '2026-07-28' } : mode;
    const client = new Client(
        { name: 'interop-ts2', version: '1.0.0' },
        {
            capabilities: { elicitation: {}, sampling: {}, roots: {} },
            versionNegotiation: { mode: negotiation },
            ...(version && { supportedProtocolVersions: [version] })
        }
    );
    client.setRequestHandler('elicitation/create', ({ params }) => heard.elicitation(params));
    client.setRequestHandler('sampling/createMessage', ({ params }) => heard.sampling(params));
    client.setRequestHandler('roots/list', () => heard.roots());
    client.setNotificationHandler('notifications/message', ({ params }) => heard.log(params));
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => {
        heard.updates.push(params.uri);
    });
    client.setNotificationHandler('notifications/tools/list_changed', () => {
        heard.toolChanges.push('tools');
    });
    await client.connect(
        url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport({ command, args })
    );
    return session(client);
}

await main(connect);
