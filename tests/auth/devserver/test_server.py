"""What a development server is, and where it may not run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from oauth_caller import CALLBACK, Caller, Clock, back, error_of
from pages_of import form_of

from ferrule.auth.address import AddressRules
from ferrule.auth.devserver.clients import RegisteredClient
from ferrule.auth.devserver.server import DevServer
from ferrule.auth.devserver.store import Store
from ferrule.auth.fetch import Fetcher
from ferrule.errors import SetupError
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.site import Site
from ferrule.transports.http.routes.web import WebRequest, WebResponse


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.com", ""])
def test_it_listens_on_this_machine_only(host: str) -> None:
    """SUP-06."""
    with pytest.raises(SetupError, match="address of this machine"):
        DevServer(host=host)


@pytest.mark.parametrize(("environment", "starts"), [({}, False), ({"FERRULE_ENV": "dev"}, True)])
def test_it_runs_only_where_it_is_told_that_this_is_development(environment: dict[str, str], starts: bool) -> None:
    """SUP-06: as a program, which says where it is and ends when it is interrupted."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FERRULE"))}
    words = [sys.executable, "-m", "ferrule.auth.devserver", "--port", "0", "--client", "app=http://127.0.0.1/cb"]
    with subprocess.Popen(
        words, env={**own, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            said = child.stdout.readline()
            assert said.startswith("issuer http://127.0.0.1:") is starts
            if not starts:
                _, error = child.communicate(timeout=20)
                assert error.startswith("error: DevServer knows no passwords")
        finally:
            child.terminate()


def test_an_option_there_is_not_is_told() -> None:
    with pytest.raises(SetupError, match="did you mean 'scopes'"):
        DevServer(scope=["a"])


def test_nothing_secret_is_shown() -> None:
    client = RegisteredClient(id="app", secret="s3cret")
    assert "s3cret" not in repr(client)


async def test_its_keys_end_with_it() -> None:
    async with DevServer() as first, DevServer() as second:
        assert first.tokens.keys[0].id != second.tokens.keys[0].id


def test_what_is_kept_is_bounded_and_ends() -> None:
    clock = Clock()
    store: Store[int] = Store(clock, max_entries=2)
    for number in range(3):
        store.put(str(number), number, 10)
    assert [store.get(str(number)) for number in range(3)] == [None, 1, 2]
    assert store.take("1") == 1
    assert store.take("1") is None
    clock.now += 10
    assert store.get("2") is None


# -- the page


def with_page(**options: Any) -> DevServer:
    """Return a server that shows its page."""
    server = DevServer(**options)
    server.add_client("app", redirect_uris=[CALLBACK], name="<b>Notes</b> & more")
    return server


async def test_the_page_names_who_asks_and_cannot_be_framed_or_scripted() -> None:
    """AUT-11, SEC-2, AUTH-16: HTML in a name is text, the redirect host is shown."""
    async with with_page() as server, Caller(server) as caller:
        answer = await caller.authorize(scope=["notes <script>alert(", "x", ")</script>"][0] + "</script>")
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert "&lt;b&gt;Notes&lt;/b&gt; &amp; more" in answer.text
        assert "<script" not in answer.text
        assert "127.0.0.1:8765" in answer.text


async def test_a_user_signs_in_on_the_page() -> None:
    async with with_page() as server, Caller(server) as caller:
        form = form_of(await caller.authorize())
        answer = await caller._http.post(server.url("authorize"), data={**form, "user": "grace", "decision": "allow"})
        given = (await caller.redeem(back(answer)["code"])).json()
        found = server.tokens.find_access(given["access_token"])
        assert found is not None
        assert found.login.subject == "grace"


@pytest.mark.parametrize("fields", [{"decision": "deny", "user": "ada"}, {"decision": "allow", "user": " "}, {}])
async def test_a_user_who_does_not_allow_it_is_sent_back_with_nothing(fields: dict[str, str]) -> None:
    async with with_page() as server, Caller(server) as caller:
        form = form_of(await caller.authorize())
        answer = await caller._http.post(server.url("authorize"), data={**form, **fields})
        said = back(answer)
        assert (said["error"], said["state"], said["iss"]) == ("access_denied", "s1", server.issuer)


async def test_a_form_counts_once_for_ten_minutes_and_cannot_be_made_up() -> None:
    """AUT-11."""
    clock = Clock()
    async with with_page(clock=clock) as server, Caller(server) as caller:
        allow = {"user": "ada", "decision": "allow"}
        form = form_of(await caller.authorize())
        send = caller._http.post
        assert (await send(server.url("authorize"), data={**form, **allow})).status_code == 303
        assert (await send(server.url("authorize"), data={**form, **allow})).status_code == 400
        late = form_of(await caller.authorize())
        clock.now += 600
        assert (await send(server.url("authorize"), data={**late, **allow})).status_code == 400
        assert (await send(server.url("authorize"), data={"ticket": "x", **allow})).status_code == 400
        foreign = {"origin": "https://evil.example.com"}
        fresh = form_of(await caller.authorize())
        assert (await send(server.url("authorize"), data={**fresh, **allow}, headers=foreign)).status_code == 403


async def test_who_may_not_be_asked_is_not_asked() -> None:
    async with with_page() as server, Caller(server) as caller:
        assert back(await caller.authorize(prompt="none"))["error"] == "login_required"


# -- documents of clients


class Publisher:
    """A site with the document of a client."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        self.asked = 0
        self.status = 200
        self.site = Site([CustomRoute("/{name}", ["GET"], self._answer, auth=False)])

    @property
    def url(self) -> str:
        """The client's id."""
        return f"{self.site.origin}/client.json"

    async def _answer(self, request: WebRequest) -> WebResponse:
        self.asked += 1
        document = {"client_id": self.url, "client_name": "Notes", "redirect_uris": [CALLBACK], **self.changes}
        headers = {"Location": f"{self.site.origin}/other.json"} if self.status == 302 else {}
        return WebResponse(document, self.status, headers)


async def test_a_client_is_known_by_the_document_it_publishes() -> None:
    """AUTH-16, ACLI-14: and it is read once while it may be kept."""
    clock = Clock()
    publisher = Publisher(grant_types=["authorization_code", "refresh_token"])
    async with publisher.site, DevServer(user="ada", clock=clock) as server, Caller(server, publisher.url) as caller:
        assert "refresh_token" in await caller.login()
        assert publisher.asked == 1
        clock.now += 301
        assert (await caller.authorize()).status_code == 303
        assert publisher.asked == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "https://other.example.com/client.json"},
        {"client_name": ""},
        {"client_secret": "x"},
        {"token_endpoint_auth_method": "client_secret_basic"},
        {"redirect_uris": ["https://other.example.com/"]},
        {"redirect_uris": []},
        {"redirect_uris": "x"},
        {"client_name": "x" * 70_000},
    ],
)
async def test_a_document_that_is_wrong_is_refused(changes: dict[str, Any]) -> None:
    """AUTH-16, AUT-12."""
    publisher = Publisher(**changes)
    async with publisher.site, DevServer(user="ada") as server, Caller(server, publisher.url) as caller:
        answer = await caller.authorize()
        assert answer.status_code == 400
        assert "location" not in answer.headers


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_a_document_that_is_elsewhere_or_not_there_is_refused(status: int) -> None:
    """AUT-12: a redirect is not followed."""
    publisher = Publisher()
    publisher.status = status
    async with publisher.site, DevServer(user="ada") as server, Caller(server, publisher.url) as caller:
        assert (await caller.authorize()).status_code == 400
        assert publisher.asked == 1


@pytest.mark.parametrize(
    "client_id",
    ["https://10.0.0.1/c", "https://169.254.169.254/c", "https://as.example.com", "http://as.example.com/c"],
)
async def test_a_document_on_a_private_address_is_not_asked_for(client_id: str) -> None:
    """AUT-12, AUT-06."""
    async with DevServer(user="ada") as server, Caller(server, client_id) as caller:
        assert (await caller.authorize()).status_code == 400


async def test_a_server_with_strict_rules_asks_nothing_on_this_machine() -> None:
    publisher = Publisher()
    server = DevServer(user="ada", fetcher=Fetcher(AddressRules()))
    async with publisher.site, server, Caller(server, publisher.url) as caller:
        assert (await caller.authorize()).status_code == 400
        assert publisher.asked == 0


# -- floods


async def test_a_body_that_is_too_long_is_refused() -> None:
    async with DevServer() as server, Caller(server) as caller:
        answer = await caller._http.post(server.url("register"), content=b" " * 70_000)
        assert answer.status_code == 413


async def test_too_many_parameters_are_refused() -> None:
    async with DevServer() as server, Caller(server) as caller:
        server.add_client("app")
        answer = await caller.post("token", {f"p{number}": "x" for number in range(200)})
        assert error_of(answer) == (400, "invalid_request")


@pytest.mark.parametrize("endpoint", ["token", "authorize", "introspect", "revoke"])
async def test_a_form_of_very_many_fields_is_refused(endpoint: str) -> None:
    async with DevServer() as server, Caller(server) as caller:
        kind = {"content-type": "application/x-www-form-urlencoded"}
        answer = await caller._http.post(server.url(endpoint), content=b"a&" * 5000, headers=kind)
        assert answer.status_code == 400


async def test_a_token_request_that_is_no_form_is_refused() -> None:
    async with DevServer() as server, Caller(server) as caller:
        answer = await caller._http.post(server.url("token"), json={"grant_type": "client_credentials"})
        assert error_of(answer) == (400, "invalid_request")
