"""Peers that speak another protocol than ours on a stream of messages: a browser, above all.

A web page can let its reader's browser send a request with a body of its choice to any port of the reader's machine.
Where messages are lines, the head of that request is a few lines that cannot be read, and its body would be messages.
So a peer that speaks HTTP is closed at its first line, as Redis does. The same holds for TLS on a port without it: what
a browser sends in a handshake (RFC 8446 §4.1.2) can hold text that a web page has chosen.
"""

from __future__ import annotations

import re

_HTTP = re.compile(
    rb"(?:CONNECT|DELETE|GET|HEAD|OPTIONS|PATCH|POST|PRI|PUT|TRACE)[ \t]"  # RFC 9110 §9.3, RFC 9113 §3.4
    rb"|[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}[ \t][^ \t]{1,8192}[ \t]HTTP/"  # RFC 9112 §3
    rb"|HTTP/[0-9]"
    rb"|(?:Accept|Accept-Encoding|Accept-Language|Access-Control-[a-z-]{1,64}|Connection|Content-Type|Cookie|Host"
    rb"|Origin|Referer|Sec-[a-z-]{1,64}|Upgrade|Upgrade-Insecure-Requests|User-Agent)[ \t]*:",
    re.IGNORECASE,
)
_TLS_HANDSHAKE = b"\x16\x03"
_LOOKED_AT = 16 * 1024
"""How much of a line is looked at."""


def foreign_protocol(line: bytes) -> str:
    """Return the name of the protocol that a line belongs to where it is none of ours, else an empty text."""
    if _HTTP.match(line[:_LOOKED_AT].lstrip()):
        return "HTTP"
    if line.startswith(_TLS_HANDSHAKE):
        return "TLS"
    return ""
