"""Who issues tokens for a server: every place in its order, and every document that is about somebody else."""

from __future__ import annotations

from typing import Any

import pytest
from protected import Documents, discovery, paths

from ferrule import AuthorizationFailed
from ferrule.auth.address import AddressRules
from ferrule.auth.challenge import Challenge
from ferrule.auth.client.discovery import Discovery, metadata_urls
from ferrule.auth.client.metadata import covers
from ferrule.auth.fetch import Fetcher

ORIGIN = "https://a.example"
URL = f"{ORIGIN}/mcp"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
ISSUER = "https://as.example"
AS = f"{ISSUER}/.well-known/oauth-authorization-server"


def resource(**changes: Any) -> dict[str, Any]:
    """Return the metadata of the resource."""
    return {"resource": URL, "authorization_servers": [ISSUER], **changes}


def server(issuer: str = ISSUER, **changes: Any) -> dict[str, Any]:
    """Return the metadata of the authorization server."""
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "code_challenge_methods_supported": ["S256"],
        **changes,
    }


def named(url: str) -> Challenge:
    """Return a challenge that names a URL."""
    return Challenge("Bearer", {"resource_metadata": url})


# -- the resource


async def test_the_metadata_is_at_the_path_of_the_server_first() -> None:
    """ACLI-2"""
    documents = Documents({ORIGIN + WELL_KNOWN + "/mcp": resource(), AS: server()})
    found = await discovery(documents).find(None)
    assert (found.resource, found.issuer) == (URL, ISSUER)
    assert documents.asked == [ORIGIN + WELL_KNOWN + "/mcp", AS]


async def test_then_at_the_root_and_its_resource_is_taken_as_it_is_written() -> None:
    """ACLI-2, ACLI-7: nothing is added to a bare origin."""
    documents = Documents({ORIGIN + WELL_KNOWN: resource(resource=ORIGIN), AS: server()})
    found = await discovery(documents).find(None)
    assert found.resource == ORIGIN
    assert paths(documents.asked)[:2] == [WELL_KNOWN + "/mcp", WELL_KNOWN]


async def test_what_the_challenge_names_is_asked_and_nothing_else() -> None:
    """ACLI-2"""
    documents = Documents({f"{ORIGIN}/custom.json": resource(), AS: server()})
    await discovery(documents).find(named(f"{ORIGIN}/custom.json"))
    assert paths(documents.asked)[0] == "/custom.json"


@pytest.mark.parametrize("url", ["https://evil.example/prm", "https://a.example.evil.example/x", "http://a.example/x"])
async def test_metadata_at_another_origin_is_not_fetched(url: str) -> None:
    """SEC-6: unless it is told that this is right."""
    documents = Documents({url: resource(), AS: server()})
    with pytest.raises(AuthorizationFailed, match="at another origin"):
        await discovery(documents).find(named(url))
    assert documents.asked == []
    if url.startswith("https://evil"):
        assert await discovery(documents, foreign_metadata=True).find(named(url))


@pytest.mark.parametrize(
    "other",
    [
        "https://evil.example/mcp",
        "https://a.example/mcp2",
        "https://a.example/mc",
        "https://a.example/mcp/deeper",
        "http://a.example/mcp",
        "https://a.example:444/mcp",
        "https://user@a.example/mcp",
        "https://a.example/other/../mcp",
        "https://a.example/mcp#part",
        "",
    ],
)
async def test_a_resource_that_is_not_the_server_stops_the_login(other: str) -> None:
    """ACLI-3"""
    documents = Documents({ORIGIN + WELL_KNOWN + "/mcp": resource(resource=other), AS: server()})
    with pytest.raises(AuthorizationFailed, match="about another resource"):
        await discovery(documents).find(None)
    assert AS not in documents.asked


@pytest.mark.parametrize("given", [URL, "https://a.example", "https://a.example/", "https://A.example/mcp", f"{URL}/"])
def test_a_resource_is_the_url_or_its_beginning(given: str) -> None:
    """ACLI-3"""
    assert covers(given, URL)


async def test_a_resource_without_an_authorization_server_stops_the_login() -> None:
    documents = Documents({ORIGIN + WELL_KNOWN: resource(authorization_servers=[])})
    with pytest.raises(AuthorizationFailed, match="it names 0 authorization servers"):
        await discovery(documents).find(None)


async def test_metadata_of_all_tenants_is_taken_where_that_is_meant() -> None:
    """ACLI-5: `{tenantid}` for `common` at the same origin, and nothing else; and only where it is asked for."""
    common = "https://login.example/common/v2.0"
    place = "https://login.example/common/v2.0/.well-known/openid-configuration"
    documents = Documents(
        {
            ORIGIN + WELL_KNOWN: resource(authorization_servers=[common]),
            place: server("https://login.example/{tenantid}/v2.0"),
        }
    )
    assert (await discovery(documents, any_tenant=True).find(None)).issuer == common
    with pytest.raises(AuthorizationFailed, match=r"about another issuer.*any_tenant=True"):
        await discovery(documents).find(None)
    for other in ("https://evil.example/{tenantid}/v2.0", "https://login.example/one/v2.0", "https://login.example"):
        wrong = Documents({ORIGIN + WELL_KNOWN: resource(authorization_servers=[common]), place: server(other)})
        with pytest.raises(AuthorizationFailed, match="about another issuer"):
            await discovery(wrong, any_tenant=True).find(None)


async def test_of_several_authorization_servers_the_known_one_is_used() -> None:
    """ACLI-3"""
    other = "https://other.example"
    documents = Documents(
        {
            ORIGIN + WELL_KNOWN: resource(authorization_servers=[ISSUER, other]),
            AS: server(),
            f"{other}/.well-known/oauth-authorization-server": server(other),
        }
    )
    assert (await discovery(documents).find(None)).issuer == ISSUER
    assert (await discovery(documents).find(None, [other])).issuer == other
    assert (await discovery(documents, issuer=other).find(None, [ISSUER])).issuer == other
    with pytest.raises(AuthorizationFailed, match=r"does not name https://third"):
        await discovery(documents, issuer="https://third.example").find(None)


@pytest.mark.parametrize("status", [500, 503, 0])
async def test_a_document_that_fails_leads_nowhere_else(status: int) -> None:
    documents = Documents({ORIGIN + WELL_KNOWN + "/mcp": status})
    with pytest.raises(AuthorizationFailed):
        await discovery(documents).find(None)
    assert len(documents.asked) == 1


@pytest.mark.parametrize("page", [b"<html>", b"[]", b"", b"\xff"])
async def test_a_web_page_is_no_document(page: bytes) -> None:
    documents = Documents({ORIGIN + WELL_KNOWN + "/mcp": page, ORIGIN + WELL_KNOWN: resource(), AS: server()})
    assert (await discovery(documents).find(None)).issuer == ISSUER


@pytest.mark.parametrize(
    "changes",
    [
        {"resource": 7},
        {"authorization_servers": "x"},
        {"authorization_servers": [7]},
        {"scopes_supported": ["x"] * 500},
    ],
)
async def test_a_malformed_document_is_refused(changes: dict[str, Any]) -> None:
    documents = Documents({ORIGIN + WELL_KNOWN: resource(**changes)})
    with pytest.raises(AuthorizationFailed):
        await discovery(documents).find(None)


# -- the authorization server


def test_the_places_of_an_issuer_are_in_order() -> None:
    """ACLI-4"""
    assert metadata_urls("https://a/t") == [
        "https://a/.well-known/oauth-authorization-server/t",
        "https://a/.well-known/openid-configuration/t",
        "https://a/t/.well-known/openid-configuration",
    ]
    assert metadata_urls("https://a") == [
        "https://a/.well-known/oauth-authorization-server",
        "https://a/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize("said", ["https://as.example/", "https://AS.example", "https://attacker.example", "", 7])
async def test_metadata_of_another_issuer_is_not_used(said: object) -> None:
    """ACLI-5: compared byte by byte."""
    documents = Documents({ORIGIN + WELL_KNOWN: resource(), AS: server(issuer=ISSUER) | {"issuer": said}})
    with pytest.raises(AuthorizationFailed):
        await discovery(documents).find(None)


@pytest.mark.parametrize("methods", [None, [], ["plain"], ["s256"]])
async def test_who_does_not_say_s256_is_refused(methods: list[str] | None) -> None:
    """ACLI-6, AUT-08: unless it says nothing and we were told that it does it."""
    documents = Documents({ORIGIN + WELL_KNOWN: resource(), AS: server(code_challenge_methods_supported=methods)})
    with pytest.raises(AuthorizationFailed, match="PKCE with S256"):
        await discovery(documents).find(None)
    assumed = discovery(documents, assume_pkce=True)
    if methods:
        with pytest.raises(AuthorizationFailed, match="PKCE with S256"):
            await assumed.find(None)
    else:
        assert (await assumed.find(None)).issuer == ISSUER


async def test_before_there_was_resource_metadata_a_server_was_its_own_authorization_server() -> None:
    """ACLI-4: its metadata at the root of its origin, its issuer anywhere in it."""
    place = f"{ORIGIN}/.well-known/oauth-authorization-server"
    for issuer in (ORIGIN, f"{ORIGIN}/oauth"):
        found = await discovery(Documents({place: server(issuer)})).find(None)
        assert (found.issuer, found.resource) == (issuer, URL)
    with pytest.raises(AuthorizationFailed, match="another issuer"):
        await discovery(Documents({place: server("https://evil.example")})).find(None)


async def test_without_any_metadata_the_usual_endpoints_are_used() -> None:
    """ACLI-4"""
    found = await discovery(Documents({})).find(None)
    assert found.server.token_endpoint == f"{ORIGIN}/token"
    assert found.server.authorization_endpoint == f"{ORIGIN}/authorize"
    assert found.server.registration_endpoint == f"{ORIGIN}/register"


async def test_each_step_is_told_with_what_is_wrong_and_the_fix() -> None:
    looking = discovery(Documents({ORIGIN + WELL_KNOWN + "/mcp": resource(resource="https://x.example")}))
    with pytest.raises(AuthorizationFailed):
        await looking.find(None)
    assert [step.ok for step in looking.steps] == [True, False]
    assert looking.steps[-1].fix == f"its resource must be {URL}, or a beginning of that"


# -- where nothing may be fetched


TRAPS = [
    "http://169.254.169.254/x",
    "https://169.254.169.254/x",
    "https://127.0.0.1:6379/",
    "https://[::ffff:127.0.0.1]/",
    "https://0.0.0.0/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://[fd00:ec2::254]/",
    "https://10.0.0.1/",
    "https://flips.example/",
    "file:///etc/passwd",
    "javascript:alert(1)",
]


@pytest.mark.parametrize("trap", TRAPS)
async def test_an_authorization_server_inside_our_network_is_never_reached(trap: str) -> None:
    """AUT-06, SEC-6: refused before anything is connected."""
    resolved: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        resolved.append(host)
        return ["93.184.216.34", "127.0.0.1"]

    fetcher = Fetcher(AddressRules(), resolve=resolve)
    looking = Discovery(fetcher, URL)
    with pytest.raises(AuthorizationFailed) as refused:
        await looking.server(trap)
    assert "cannot be logged in to" in str(refused.value)
    assert resolved in ([], ["flips.example"])


async def test_a_server_elsewhere_does_not_send_us_to_this_machine() -> None:
    """AUT-06: loopback is asked only for a server that is here too."""
    fetcher = Fetcher(AddressRules(loopback=False))
    with pytest.raises(AuthorizationFailed, match=r"this machine|http://"):
        await Discovery(fetcher, URL).server("http://127.0.0.1:1")
