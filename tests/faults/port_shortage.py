"""Uses up the ports of a network of its own, and tells as JSON how a client and its server fare; see test_scarcity.py.

unshare -rn python port_shortage.py
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import socket
import struct
from pathlib import Path
from typing import Any

from http_mcp import served

from ferrule import CallFailed, CarrierError, Client, Server
from patience import PATIENT

SIOCSIFFLAGS, UP_AND_RUNNING = 0x8914, 0x41
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST, LAST = 30000, 30011
AT_ONCE = 20
HTTP = {"retry_delay": 0.05}


def make_network() -> None:
    """Bring up a loopback whose outgoing connections have a dozen ports."""
    with socket.socket() as plug:
        fcntl.ioctl(plug, SIOCSIFFLAGS, struct.pack("16sh", b"lo", UP_AND_RUNNING))
    RANGE.write_text(f"{FIRST} {LAST}")


def use_up(port: int) -> list[socket.socket]:
    """Connect as long as there is a port to connect from."""
    held: list[socket.socket] = []
    while True:
        plug = socket.socket()
        # Closed with a reset: no port waits for stragglers then.
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            plug.connect(("127.0.0.1", port))
        except OSError as error:
            plug.close()
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            return held
        held.append(plug)


async def failure(work: Any) -> str:
    try:
        await work
    except (CarrierError, CallFailed) as error:
        return str(error)
    return ""


async def answered(client: Client, texts: list[str]) -> bool:
    """Ask for all of them at once; tells whether each came back."""
    results = await asyncio.gather(*(client.call_tool("echo", {"text": text}) for text in texts))
    return [result.data for result in results] == texts


async def fare(port: int, era: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/mcp"
    told: dict[str, Any] = {}
    texts = [str(number) for number in range(AT_ONCE)]

    def new() -> Client:
        return Client(url, mode=era, http=HTTP, **PATIENT)

    async with new() as client:
        await client.list_tools()
        held = use_up(port)
        told["held"] = len(held)
        # One connection, and all is well: those who come one by one share it, and so do those who come at once.
        told["one by one"] = all([await answered(client, [text]) for text in texts])
        told["at once"] = await answered(client, texts)
        held += use_up(port)
        told["new client"] = await failure(new().__aenter__())
        for plug in held:
            plug.close()
        told["at once, recovered"] = await answered(client, texts)
        async with new() as another:
            told["new client, recovered"] = await answered(another, texts[:1])
    return told


async def main() -> dict[str, Any]:
    app = Server("upstream")

    @app.tool
    async def echo(text: str) -> str:
        await asyncio.sleep(0.01)
        return text

    found = {}
    for era in ("handshake", "stateless"):
        async with served(app, host="127.0.0.1") as port:
            found[era] = await fare(port, era)
    return found


if __name__ == "__main__":
    make_network()
    print(json.dumps(asyncio.run(main())))
