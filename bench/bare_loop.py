"""The bare loop: read, decode, call a function in place, encode, write; nothing can wait, and nothing else can run.

No server that keeps the protocol can be like this, for a handler that waits stops everybody. It says what the
interpreter, uvloop, msgspec and three system calls cost together. A plain function is handed to a thread by a lock and
back by another, the cheapest way there is, while the loop stands still; a call that waits sleeps.
"""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable
from typing import Any

import msgspec
import uvloop
from servers.catalogue import STATIC_TEXT
from sketch import Answer, CallResult, Contents, Incoming, Lines, ReadResult, Text, encode, plus, serve


class Thread:
    """Adds in a thread, one pair at a time."""

    def __init__(self) -> None:
        self.asked, self.answered = _thread.allocate_lock(), _thread.allocate_lock()
        self.asked.acquire()
        self.answered.acquire()
        _thread.start_new_thread(self.serve, ())

    def add(self, a: int, b: int) -> int:
        """Add two integers there, and wait for it."""
        self.pair = a, b
        self.asked.release()
        self.answered.acquire()
        return self.sum

    def serve(self) -> None:
        """Add what is asked for."""
        while True:
            self.asked.acquire()
            self.sum = plus(*self.pair)
            self.answered.release()


def echo(text: str) -> str:
    """Return the text back."""
    return text


def wait(ms: int) -> str:
    """Answer later."""
    time.sleep(ms / 1000)
    return "ok"


class BareLines(Lines):
    """Answers every message in place."""

    def __init__(self, fixed: dict[str, msgspec.Raw]) -> None:
        super().__init__(fixed)
        self.functions: dict[str, Callable[..., Any]] = {
            "add": plus,
            "add_sync": Thread().add,
            "echo": echo,
            "wait": wait,
        }

    def take(self, message: Incoming) -> None:
        """Answer one message."""
        params = message.params
        if message.method == "tools/call":
            value = self.functions[params.name](**params.arguments)
            self.ready.append(encode(Answer(message.id, CallResult([Text(str(value))], {"result": value}))))
        elif message.method == "resources/read":
            contents = Contents(params.uri, "text/plain", STATIC_TEXT)
            self.ready.append(encode(Answer(message.id, ReadResult([contents]))))
        elif message.id is not None:
            self.ready.append(encode(Answer(message.id, self.fixed[message.method])))


if __name__ == "__main__":
    uvloop.run(serve(BareLines))
