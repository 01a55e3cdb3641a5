"""The smallest client: starts hello_server.py as a child process, without any asyncio in sight."""

from __future__ import annotations

from pathlib import Path

from ferrule import SyncClient, ToolError

SERVER = Path(__file__).with_name("hello_server.py")


def main() -> None:
    """List the tools, call one well and one badly."""
    with SyncClient(SERVER) as client:
        print("protocol:", client.protocol_version)
        print("tools:", ", ".join(tool.name for tool in client.list_tools()))
        print("1 + 2 =", client.call_tool("add", {"a": 1, "b": 2}).data)
        try:
            client.call_tool("add", {"a": "one"})
        except ToolError as error:
            print("refused:", str(error).replace("\n", "; "))


if __name__ == "__main__":
    main()
