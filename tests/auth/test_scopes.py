"""Scopes: which words they are, and which include others."""

from __future__ import annotations

import pytest

from ferrule.auth.scopes import ScopeHierarchy, read_scopes
from ferrule.errors import SetupError
from ferrule.identity.principal import require_scopes


@pytest.mark.parametrize(
    ("claim", "scopes"),
    [("a b  c", {"a", "b", "c"}), (["a", "b", "", 1], {"a", "b"}), (None, set()), (7, set()), ({"a": 1}, set())],
)
def test_a_claim_holds_words_or_a_list(claim: object, scopes: set[str]) -> None:
    assert read_scopes(claim) == scopes


def test_a_scope_includes_others_through_any_number_of_steps() -> None:
    """AUTH-5: hierarchies are accounted for."""
    hierarchy = ScopeHierarchy({"admin": ["write"], "write": ["read"], "read": ["admin"]})
    assert hierarchy.expand({"write"}) == {"admin", "write", "read"}
    assert ScopeHierarchy({"admin": ["read"]}).expand(["read"]) == {"read"}


@pytest.mark.parametrize("wrong", ["notes", ["two words"], ['quo"te'], [""], ["offline_access"], [7]])
def test_what_is_no_list_of_scopes_is_refused(wrong: object) -> None:
    """AUTH-10: `offline_access` is never asked for."""
    with pytest.raises(SetupError):
        require_scopes(wrong, "scopes")  # type: ignore[arg-type]
