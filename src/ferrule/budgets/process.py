"""The accounts of the whole process: what all its servers and clients, and all their peers, may hold together.

Every account of a single peer lies within one of these. Set a limit before or while serving:
`ferrule.budgets.process.requests.limit = 256 * 1024 * 1024`.
"""

from __future__ import annotations

from ferrule.budgets.account import Account

MIB = 1024 * 1024

MAX_REQUESTS = 48 * MIB
MAX_STANDING = 10_000

requests = Account("requests being read or worked on", MAX_REQUESTS)
"""Estimated bytes of messages that are not whole yet, that wait, or whose call still runs (see `budgets.weight`)."""

standing = Account("standing calls", MAX_STANDING)
"""Calls that stay open for as long as their caller wants, such as `subscriptions/listen`: they hold no slot."""

answers = Account("answers not yet taken by their readers", 32 * MIB)
"""Bytes written to peers that read slower than we write."""

subscriptions = Account("subscriptions", 32 * MIB)
"""Bytes of the URIs and tasks that peers listen to, with what keeping each of them takes."""
