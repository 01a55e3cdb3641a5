"""Who may call a benchmark server: everybody, or who shows the token its environment tells of."""

from __future__ import annotations

import json
import os
from typing import Any


def protection() -> dict[str, Any]:
    """Return the options of a server that asks for the token; none where everybody may call."""
    keys = os.environ.get("BENCH_KEYS")
    if keys is None:
        return {}
    # An earlier checkout has no such name, and is never asked for it.
    from ferrule import JWT

    auth = JWT(
        os.environ["BENCH_ISSUER"],
        jwks=json.loads(keys),
        resource=os.environ["BENCH_AUDIENCE"],
        algorithms=[os.environ["BENCH_ALGORITHM"]],
    )
    if os.environ["BENCH_CHECKS"] == "always":
        auth.keep = auth.keep_good = 0.0
    return {"auth": auth}
