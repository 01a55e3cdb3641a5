"""A contestant's HTTP server, its sessions, and one-by-one requests to it."""

from __future__ import annotations

import json
import socket

from bench.contestants import Contestant
from bench.messages import FIRST_ID, Operation, opened, opening
from bench.process import START_LIMIT, BadAnswer, ServerProcess, free_port, time_limit
from bench.streamable.wire import Address, Mode, Response, connect, exchange


def result_of(response: Response, number: int) -> dict:
    """Return the result in an answer to the request of that id."""
    messages = response.messages() if response.status == 200 else []
    for message in map(json.loads, messages):
        if message.get("id") == number and "method" not in message:
            if "result" not in message:
                break
            return message["result"]
    raise BadAnswer(f"refused with {response.status}: {response.body[:300].decode(errors='replace')}")


class HttpServer(ServerProcess):
    """A contestant's server that has answered an opening request."""

    def __init__(
        self, contestant: Contestant, mode: Mode, extra_tools: int = 0, token: str = "", more: bool = False
    ) -> None:
        self.mode = mode
        self._token = token
        self.next_id = FIRST_ID
        self.port = free_port()
        self.joining = contestant.joining
        self._sessions: list[bytes] = []
        arguments = ["--transport", "http", "--port", str(self.port), "--mode", mode, "--tools", str(extra_tools)]
        if more:
            arguments.append("--more")
        super().__init__(contestant, arguments, pipes=False)
        try:
            with time_limit(START_LIMIT):
                self.wait_until_listening(self.port)
                with connect(self.port) as connection:
                    self._sessions.append(self._open(connection))
        except BaseException:
            self.close()
            raise

    @property
    def nowhere(self) -> Address:
        """The address of requests that belong to no session."""
        return Address(self.port, self.mode.era, token=self._token)

    def sessions(self, count: int) -> list[Address]:
        """Return so many addresses to ask at, each with a session of its own where the mode has sessions."""
        if self.mode is Mode.STATELESS:
            return [self.nowhere] * count
        missing = count - len(self._sessions)
        if missing > 0:
            with connect(self.port) as connection:
                self._sessions += [self._open(connection) for _ in range(missing)]
        return [Address(self.port, self.mode.era, session) for session in self._sessions[:count]]

    def open(self, connection: socket.socket) -> Address:
        """Open a session of its own over a connection, which the caller has to end."""
        return Address(self.port, self.mode.era, self._open(connection))

    def _open(self, connection: socket.socket) -> bytes:
        """Say what a conversation begins with; gives the session's id, if there is one."""
        era = self.mode.era
        answer = exchange(connection, self.nowhere.post(opening(era), "server/discover"))
        result_of(answer, 1)
        if self.mode is Mode.STATELESS:
            return b""
        session = answer.headers.get(b"mcp-session-id", b"")
        if not session:
            raise BadAnswer("the server opened no session")
        told = exchange(connection, Address(self.port, era, session).post(opened(era)))
        if told.status not in (200, 202):
            raise BadAnswer(f"initialized was refused with {told.status}")
        return session


def ask(connection: socket.socket, address: Address, operation: Operation, number: int = FIRST_ID) -> None:
    """Ask for one operation and see that the answer is right."""
    result = result_of(exchange(connection, address.once(operation, number)), number)
    if not operation.accepts(result):
        raise BadAnswer(f"a wrong answer: {json.dumps(result)[:300]}")
