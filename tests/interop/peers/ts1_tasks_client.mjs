// Uses tools as tasks with the TypeScript SDK 1.x; prints what it saw as JSON.
import { packagesOf } from './scenario.mjs';

const [, , folder, command, ...args] = process.argv;
const load = packagesOf(folder);
const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = load('@modelcontextprotocol/sdk/client/stdio.js');
const types = load('@modelcontextprotocol/sdk/types.js');

const client = new Client({ name: 'ts1', version: '1' }, { capabilities: { elicitation: { form: {} } } });
client.setRequestHandler(types.ElicitRequestSchema, async () => ({ action: 'accept', content: { value: 'Ann' } }));
await client.connect(new StdioClientTransport({ command, args }));

async function ended(name) {
    const seen = [];
    let last;
    const stream = client.experimental.tasks.callToolStream({ name, arguments: {} }, types.CallToolResultSchema, {
        task: { ttl: 60000 }
    });
    for await (const message of stream) {
        seen.push(message.type === 'taskStatus' ? message.task.status : message.type);
        if (message.type === 'taskCreated' && name === 'wait') {
            return { task: message.task };
        }
        last = message;
    }
    return { seen, result: last.result, error: last.error?.message };
}

const greeted = await ended('greet');
const failure = await ended('fail');
const waiting = await ended('wait');
const cancelled = await client.experimental.tasks.cancelTask(waiting.task.taskId);
const listed = await client.experimental.tasks.listTasks();
console.log(
    JSON.stringify({
        declared: client.getServerCapabilities().tasks,
        created: greeted.seen[0],
        asked: greeted.seen.includes('input_required'),
        greeting: greeted.result?.content[0].text ?? greeted.error,
        failure: failure.error ?? [failure.result.isError, failure.result.content[0].text],
        cancelled: cancelled.status,
        listed: listed.tasks.length
    })
);
await client.close();
process.exit(0);
