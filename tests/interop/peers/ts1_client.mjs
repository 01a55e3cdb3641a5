// The interop client, written with the TypeScript SDK 1.x.
import { main, packagesOf } from './scenario.mjs';

const load = packagesOf(process.argv[2]);
const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = load('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = load('@modelcontextprotocol/sdk/types.js');

// The client always offers the newest revision it knows; the transport is the one place to offer an older one.
const offering = (version, Transport) =>
    class extends Transport {
        negotiated = undefined;

        setProtocolVersion(negotiated) {
            super.setProtocolVersion?.(negotiated);
            this.negotiated = negotiated;
        }

        send(message, options) {
            if (version && message.method === 'initialize') {
                message = { ...message, params: { ...message.params, protocolVersion: version } };
            }
            return super.send(message, options);
        }
    };

function session(client, transport) {
    return {
        protocolVersion: () => transport.negotiated,
        server: () => ({ name: client.getServerVersion().name, instructions: client.getInstructions() ?? null }),
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
        call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
        read: async uri => (await client.readResource({ uri })).contents[0],
        prompt: async (name, args) => (await client.getPrompt({ name, arguments: args })).messages,
        async complete(name, argument, value) {
            const ref = { type: 'ref/prompt', name };
            return (await client.complete({ ref, argument: { name: argument, value } })).completion.values;
        },
        setLogLevel: level => client.setLoggingLevel(level),
        async subscribe(uri) {
            await client.subscribeResource({ uri });
            return () => client.unsubscribeResource({ uri });
        },
        watchTools: async () => async () => undefined,
        errorCode: error => error.code ?? null,
        close: () => client.close()
    };
}

async function connect({ command, args, version, url }, heard) {
    const client = new Client(
        { name: 'interop-ts1', version: '1.0.0' },
        { capabilities: { elicitation: {}, sampling: {}, roots: {} } }
    );
    client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => heard.elicitation(params));
    client.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => heard.sampling(params));
    client.setRequestHandler(types.ListRootsRequestSchema, () => heard.roots());
    client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => heard.log(params));
    client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) => {
        heard.updates.push(params.uri);
    });
    client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => {
        heard.toolChanges.push('tools');
    });
    const transport = url
        ? new (offering(version, StreamableHTTPClientTransport))(new URL(url))
        : new (offering(version, StdioClientTransport))({ command, args });
    await client.connect(transport);
    return session(client, transport);
}

await main(connect);
