"""Bounds on single values that come from a peer, checked before work is spent on them.

Sizes of text are characters where the text is decoded anyway, else bytes. Every bound stands in the table of
`docs/guides/limits.md`, and a test tries each of them below, at and above its value.
"""

from __future__ import annotations

MAX_ID_LENGTH = 4096
"""Characters of a request id or a progress token."""

MAX_METHOD_LENGTH = 512
"""Characters of a method name."""

MAX_NAME_LENGTH = 1024
"""Characters of the name of a tool, a prompt or an argument in a request."""

MAX_URI_LENGTH = 8192
"""Characters of a URI in a request."""

MAX_CURSOR_LENGTH = 4096
"""Characters of the cursor of a page in a request."""

MAX_BATCH = 1000
"""Elements of a batch."""

MAX_BATCH_ANSWER = 4 * 1024 * 1024
"""Bytes of the answers to one batch, which are held until the last is there; the first may be longer."""

MAX_ERROR_DATA = 64 * 1024
"""Bytes of the `data` of a peer's error; longer data is left out."""

MAX_META_SIZE = 64 * 1024
"""Bytes of the `_meta` of a request."""

MAX_PEER_INFO_SIZE = 64 * 1024
"""Bytes of what a peer says of itself in a handshake: its name and its capabilities, each."""

MAX_PEER_INFO_VALUES = 1000
"""Objects, arrays and members in each of them: so many small ones would take far more memory than their text."""

MAX_MESSAGE_WEIGHT = 64 * 1024 * 1024
"""Estimated bytes of one message once it is decoded (`ferrule.budgets.weight`)."""

MAX_NESTING = 900
"""Levels of objects and arrays in one message: fewer than any interpreter allows (`ferrule.budgets.weight`)."""

MAX_KNOWN_TOOLS = 20_000
"""Listed tools a client remembers, to know which may be called twice and what their results must fit."""

MAX_KEPT_SCHEMAS = 8 * 1024 * 1024
"""Bytes of the names and output schemas of those tools."""

MAX_KNOWN_ERAS = 1000
"""Addresses of servers whose protocol era a process remembers."""

MAX_QUESTIONS = 100
"""Questions a server may ask at once in the answer to one request, or of one task."""

MAX_PROGRESS_WAITING = 1000
"""Progress callbacks of one call that may run at once; what comes meanwhile is dropped."""

MAX_CHANGES_WAITING = 1000
"""Changes that wait in a `subscribe` block whose body is slow; the oldest is dropped."""

MAX_NOTICES_SIZE = 8 * 1024 * 1024
"""Bytes of the notifications that wait for a client's handlers; the oldest are dropped."""

MAX_UNREADABLE = 16
"""Messages in a row that cannot be read, after which a socket is closed; also of one batch, which is refused then."""

FRAMES_A_TURN = 64
"""Messages of one peer, read at once, that are handed over before the others have their turn."""

BYTES_A_TURN = 256 * 1024
"""Bytes of such messages, where one read can bring more: compressed ones. A longer message has a turn of its own."""

FREE_UNFINISHED = 64 * 1024
"""Bytes of a message that is not whole yet, up to which they are not counted in the account of the process."""

MAX_EXPLAINED_SIZE = 4 * 1024
"""Bytes of arguments up to which all that is wrong with them is listed; of longer ones only the first things are."""

MAX_REPAIRED_SIZE = 64 * 1024
"""Bytes of an argument in which 2.0 is taken for 2 where a whole number is wanted."""

MAX_VIOLATIONS = 20
"""Violations that the refusal of arguments lists."""
