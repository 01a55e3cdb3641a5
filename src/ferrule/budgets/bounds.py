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

MAX_UNREADABLE = 16
"""Messages in a row that cannot be read, after which a socket is closed."""

MAX_EXPLAINED_SIZE = 4 * 1024
"""Bytes of arguments up to which all that is wrong with them is listed; of longer ones only the first things are."""

MAX_MENDED_SIZE = 64 * 1024
"""Bytes of an argument in which 2.0 is taken for 2 where a whole number is wanted."""

MAX_VIOLATIONS = 20
"""Violations that the refusal of arguments lists."""
