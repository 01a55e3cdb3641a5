"""Routes on a port of their own."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from ferrule.errors import CarrierError, SetupError
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.transports.http.routes.site import Site
from ferrule.transports.http.routes.web import WebRequest


async def greet(request: WebRequest) -> str:
    """Answer with what was asked."""
    return f"hello {request.path_params['name']}, {request.query}"


async def echo(request: WebRequest) -> bytes:
    """Answer with the body."""
    return await request.body()


ROUTES = [CustomRoute("/hello/{name}", ["GET"], greet), CustomRoute("/echo", ["POST"], echo)]


def browser() -> httpx.AsyncClient:
    """Return something that asks."""
    return httpx.AsyncClient(trust_env=False)


async def test_a_route_is_served_and_nothing_else() -> None:
    async with Site(ROUTES) as site, browser() as http:
        answer = await http.get(f"{site.origin}/hello/ada?a=b&c")
        assert (answer.status_code, answer.text) == (200, "hello ada, a=b&c")
        assert (await http.get(f"{site.origin}/other")).status_code == 404
        assert (await http.get(f"{site.origin}/echo")).status_code == 405
        assert site.origin.endswith(f":{site.port}")


async def test_a_body_has_a_limit() -> None:
    async with Site(ROUTES, max_body_size=10) as site, browser() as http:
        assert (await http.post(f"{site.origin}/echo", content=b"0123456789")).content == b"0123456789"
        assert (await http.post(f"{site.origin}/echo", content=b"0123456789a")).status_code == 413


@pytest.mark.parametrize(
    "headers", [{"host": "evil.example.com"}, {"origin": "https://evil.example.com"}, {"origin": "null"}]
)
async def test_a_name_or_a_page_of_somebody_else_is_refused(headers: dict[str, str]) -> None:
    """AUT-18."""

    async with Site(ROUTES) as site, browser() as http:
        assert (await http.get(f"{site.origin}/hello/ada", headers=headers)).status_code == 403
        own = {"origin": site.origin}
        assert (await http.get(f"{site.origin}/hello/ada", headers=own)).status_code == 200


async def test_when_it_is_closed_an_answer_that_has_begun_is_finished_within_the_grace() -> None:
    begun = asyncio.Event()

    async def slow(request: WebRequest) -> str:
        begun.set()
        await asyncio.sleep(0.1)
        return "done"

    site = Site([CustomRoute("/slow", ["GET"], slow)])
    await site.start()
    async with browser() as http:
        asking = asyncio.create_task(http.get(f"{site.origin}/slow"))
        await begun.wait()
        await site.close(grace=5.0)
        assert (await asking).text == "done"
        with pytest.raises(httpx.TransportError):
            await http.get(f"{site.origin}/slow")
    await site.close()
    with pytest.raises(SetupError, match="served once"):
        await site.start()


async def test_where_it_is_served_is_known_once_it_is() -> None:
    site = Site(ROUTES)
    with pytest.raises(SetupError, match="not served yet"):
        _ = site.origin
    await site.close()
    async with Site(ROUTES) as first:
        with pytest.raises(CarrierError, match="in use"):
            await Site(ROUTES, port=first.port).start()
