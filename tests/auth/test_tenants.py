"""Issuers of several tenants."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.auth.tenants import issued_by, template_of, tenant_of

ENTRA = "https://login.microsoftonline.com"
TEMPLATE = f"{ENTRA}/{{tenantid}}/v2.0"


@pytest.mark.parametrize(
    ("issuer", "template"),
    [
        (f"{ENTRA}/common/v2.0", TEMPLATE),
        (f"{ENTRA}/organizations/v2.0", TEMPLATE),
        ("https://login.microsoftonline.us/common/v2.0", "https://login.microsoftonline.us/{tenantid}/v2.0"),
        (f"{ENTRA}/contoso.com/v2.0", f"{ENTRA}/contoso.com/v2.0"),
        (f"{ENTRA}/x/common/v2.0", f"{ENTRA}/x/common/v2.0"),
        (f"{ENTRA}/commons/v2.0", f"{ENTRA}/commons/v2.0"),
        ("https://common", "https://common"),
    ],
)
def test_only_the_issuer_of_all_tenants_has_a_template(issuer: str, template: str) -> None:
    assert template_of(issuer) == template


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": f"{ENTRA}/one/v2.0"},
        {"iss": f"{ENTRA}/one/v2.0", "tid": "two"},
        {"iss": f"{ENTRA}/one/v2.0", "tid": "One"},
        {"iss": f"{ENTRA}/../v2.0", "tid": ".."},
        {"iss": f"{ENTRA}/a/b/v2.0", "tid": "a/b"},
        {"iss": TEMPLATE, "tid": "{tenantid}"},
        {"iss": f"{ENTRA}/1/v2.0", "tid": 1},
        {"iss": f"{ENTRA}/{'a' * 200}/v2.0", "tid": "a" * 200},
        {"iss": "https://evil.example/one/v2.0", "tid": "one"},
    ],
    ids=range(9),
)
def test_a_token_is_of_the_tenant_it_names_or_of_nobody(claims: dict[str, Any]) -> None:
    """AUT-02: an issuer of all tenants is not an issuer of any name."""
    assert not issued_by(TEMPLATE, claims)
    assert issued_by(TEMPLATE, {"iss": f"{ENTRA}/one/v2.0", "tid": "one"})


def test_tenants_may_be_few() -> None:
    assert tenant_of({"tid": "one"}) == tenant_of({"tid": "one"}, ["one"]) == "one"
    assert tenant_of({"tid": "one"}, ["two"]) is None
    assert tenant_of({}, None) is None
