// How the TypeScript servers are served over HTTP, where `--http` is given: the twin of serving.py.
import { createServer } from 'node:http';
import { Readable } from 'node:stream';

export const overHttp = process.argv.includes('--http');

export function listen(answer) {
    const server = createServer(answer);
    server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
}

// The SDK 2.x speaks the web's Request and Response; its adapter for Node is a package of its own.
export const fromWeb = serve => async (incoming, outgoing) => {
    const gone = new AbortController();
    outgoing.on('close', () => gone.abort());
    const response = await serve(
        new Request(`http://${incoming.headers.host}${incoming.url}`, {
            method: incoming.method,
            headers: incoming.headers,
            body: ['GET', 'DELETE'].includes(incoming.method) ? undefined : Readable.toWeb(incoming),
            duplex: 'half',
            signal: gone.signal
        })
    );
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.flushHeaders();
    if (!response.body) return outgoing.end();
    return Readable.fromWeb(response.body, { signal: gone.signal })
        .on('error', () => outgoing.destroy())
        .pipe(outgoing);
};
