"""Who may call a benchmark server: everybody, or who shows the token its environment names."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode
from typing import Any


def protection() -> dict[str, Any]:
    """Return the options of a server that asks for the token; none where everybody may call."""
    keys = os.environ.get("BENCH_KEYS")
    if keys is None:
        return {}
    import json  # half a millisecond of a start, which is measured too

    if os.environ["BENCH_CHECKS"] == "signature":
        return {"auth": signature_only(json.loads(keys)["keys"][0], os.environ["BENCH_TOKEN"])}
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


def signature_only(key: dict[str, Any], token: str) -> Any:
    """Return a verifier that verifies one signature again and again, and looks at nothing of a request."""
    from ferrule.auth.jose import read_key, verify_signature
    from ferrule.identity.verifier import ANONYMOUS, RequestFacts, Verdict, Verifier

    algorithm = os.environ["BENCH_ALGORITHM"]
    ready = read_key(key)
    verify_signature(token, ready, algorithm)
    check = ready.checks[algorithm]
    head, _, written = token.rpartition(".")
    signed = head.encode()
    signature = urlsafe_b64decode(written + "==")

    class SignatureOnly(Verifier):
        def verify(self, facts: RequestFacts) -> Verdict:
            check(signature, signed)
            return ANONYMOUS

    return SignatureOnly()
