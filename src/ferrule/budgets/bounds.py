"""Bounds on single values that come from a peer, checked before work is spent on them.

Sizes of text are characters where the text is decoded anyway, else bytes. Every bound stands in the table of
`docs/guides/limits.md`, and a test tries each of them below, at and above its value.
"""

from __future__ import annotations

MAX_ID_LENGTH = 1024
"""Characters of a request id or a progress token."""

MAX_METHOD_LENGTH = 512
"""Characters of a method name."""

MAX_NAME_LENGTH = 1024
"""Characters of the name of a tool, a prompt or an argument in a request."""

MAX_URI_LENGTH = 8192
"""Characters of a URI in a request."""

MAX_BATCH = 1000
"""Elements of a batch."""

MAX_META_SIZE = 64 * 1024
"""Bytes of the `_meta` of a request."""

MAX_PEER_INFO_SIZE = 64 * 1024
"""Bytes of what a peer says of itself in a handshake: its name and its capabilities, each."""

MAX_MESSAGE_WEIGHT = 64 * 1024 * 1024
"""Estimated bytes of one message once it is decoded (`ferrule.budgets.weight`)."""

MAX_KNOWN_TOOLS = 20_000
"""Listed tools a client remembers, to know which may be called twice and what their results must fit."""

MAX_KEPT_SCHEMAS = 8 * 1024 * 1024
"""Bytes of the names and output schemas of those tools."""

MAX_KNOWN_ERAS = 1000
"""Addresses of servers whose protocol era a process remembers."""

MAX_QUESTIONS = 100
"""Questions a server may ask at once in the answer to one request, or of one task."""

MAX_PROGRESS_WAITING = 1000
"""Progress callbacks of one call that may run at once; what is told meanwhile is dropped."""

MAX_CHANGES_WAITING = 1000
"""Changes that wait in a `subscribe` block whose body is slow; the oldest is dropped."""

MAX_NOTICES_SIZE = 8 * 1024 * 1024
"""Bytes of the notifications that wait for a client's handlers; the oldest are dropped."""

MAX_UNREADABLE = 16
"""Messages in a row that cannot be read, after which a socket is closed."""
