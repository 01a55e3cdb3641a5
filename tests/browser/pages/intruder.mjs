// A page that lets the browser send the messages of a client to every port it is told of, in every way a page has.
import { observe } from './observing.mjs';

const PATIENCE = 3000;
const ports = new URLSearchParams(location.search).getAll('port');
const META = 'io.modelcontextprotocol/';
const ARGUMENTS = { name: 'add', arguments: { a: 1, b: 2 } };
const MESSAGES = [
    {
        jsonrpc: '2.0', id: 1, method: 'initialize',
        params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'page', version: '1' } }
    },
    { jsonrpc: '2.0', method: 'notifications/initialized' },
    { jsonrpc: '2.0', id: 2, method: 'tools/call', params: ARGUMENTS },
    {
        jsonrpc: '2.0', id: 3, method: 'tools/call',
        params: { ...ARGUMENTS, _meta: { [`${META}protocolVersion`]: '2026-07-28', [`${META}clientCapabilities`]: {} } }
    }
].map(message => JSON.stringify(message));
const LINES = `\r\n${MESSAGES.join('\r\n')}\r\n`;
const BLOCKS = MESSAGES.map(message => `Content-Length: ${message.length}\r\n\r\n${message}`).join('');

const later = (milliseconds, what) => new Promise(resolve => setTimeout(resolve, milliseconds, what));

async function posted(port, body, scheme = 'http') {
    const sent = fetch(`${scheme}://${port}/`, { method: 'POST', mode: 'no-cors', body, headers: { 'Content-Type': 'text/plain' } });
    return Promise.race([sent.then(answer => answer.type, () => 'failed'), later(PATIENCE, 'silent')]);
}

// A form of plain text writes its fields as name=value: the name holds the messages up to a sign of equality.
async function submitted(port) {
    const form = document.createElement('form');
    Object.assign(form, { action: `http://${port}/`, method: 'POST', enctype: 'text/plain', target: 'hidden' });
    const field = document.createElement('input');
    Object.assign(field, { name: LINES, value: '' });
    form.append(field);
    document.body.append(form);
    form.submit();
    return later(500, 'submitted');
}

function loaded(port, kind) {
    return new Promise(resolve => {
        const element = document.createElement(kind);
        element.onload = () => resolve('loaded');
        element.onerror = () => resolve('failed');
        element.src = `http://${port}/${encodeURI(LINES)}`;
        document.body.append(element);
        setTimeout(resolve, PATIENCE, 'silent');
    });
}

function webSocket(port, path) {
    return new Promise(resolve => {
        const socket = new WebSocket(`ws://${port}${path}`);
        socket.onopen = () => {
            for (const message of MESSAGES) socket.send(message);
            setTimeout(resolve, 500, 'open');
        };
        socket.onerror = () => resolve('failed');
        setTimeout(resolve, PATIENCE, 'silent');
    });
}

const steps = {};
for (const port of ports) {
    steps[`${port} fetch lines`] = () => posted(port, LINES);
    steps[`${port} fetch blocks`] = () => posted(port, BLOCKS);
    steps[`${port} fetch https`] = () => posted(port, LINES, 'https');
    steps[`${port} beacon`] = async () => later(300, navigator.sendBeacon(`http://${port}/`, LINES));
    steps[`${port} form`] = () => submitted(port);
    steps[`${port} image`] = () => loaded(port, 'img');
    steps[`${port} script`] = () => loaded(port, 'script');
    steps[`${port} websocket`] = () => webSocket(port, '/');
    steps[`${port} websocket at its path`] = () => webSocket(port, '/mcp/ws');
}
await observe(steps);
