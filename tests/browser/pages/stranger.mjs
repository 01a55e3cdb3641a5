// A page whose origin the server does not know.
import { observe, server } from './observing.mjs';

const CALL = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'add', arguments: { a: 1, b: 2 } } });

await observe({
    async asked() {
        const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' };
        return (await fetch(`${server}/mcp`, { method: 'POST', headers, body: CALL })).status;
    },
    // A browser sends this one without asking the server first; only the answer is kept from the page.
    async sent_unasked() {
        return (await fetch(`${server}/mcp`, { method: 'POST', mode: 'no-cors', body: CALL })).type;
    },
    event_source: () =>
        new Promise(resolve => {
            const events = new EventSource(`${server}/sse`);
            events.onopen = () => resolve('open');
            events.onerror = () => resolve(events.readyState === EventSource.CLOSED ? 'closed' : 'trying again');
        })
});
