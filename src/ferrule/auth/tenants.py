"""Issuers of several tenants: Entra publishes one set of metadata for all, and each token names the tenant it is of."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

TENANT = "{tenantid}"
"""What such metadata has in its issuer where the tenant would be."""
SHARED = ("common", "organizations")
"""What addresses have there that are for every tenant."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-]{0,127}")


def template_of(issuer: str) -> str:
    """Return the issuer of all tenants with `{tenantid}` in it, any other as it is."""
    parts = urlsplit(issuer)
    _, _, path = parts.path.partition("/")
    tenant, slash, rest = path.partition("/")
    if tenant not in SHARED:
        return issuer
    return urlunsplit(parts._replace(path=f"/{TENANT}{slash}{rest}"))


def tenant_of(claims: Mapping[str, Any], allowed: Collection[str] | None = None) -> str | None:
    """Return the tenant a token names; None where it names none, or one that is not allowed."""
    tenant = claims.get("tid")
    if not isinstance(tenant, str) or not _NAME.fullmatch(tenant):
        return None
    if allowed is not None and tenant not in allowed:
        return None
    return tenant


def issued_by(template: str, claims: Mapping[str, Any]) -> bool:
    """Return whether a token is of the issuer that a template makes of the tenant it names."""
    if TENANT not in template:
        return bool(claims.get("iss") == template)
    tenant = tenant_of(claims)
    return tenant is not None and claims.get("iss") == template.replace(TENANT, tenant)
