"""What load balancers and scrapers ask for: who is answered, with what, and how dearly."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from ferrule import Client, Http, Server, SetupError, Unauthorized, Verifier, WebRequest
from ferrule.telemetry.exposition import OPENMETRICS, PROMETHEUS
from ferrule.telemetry.health import CheckResult
from ferrule.telemetry.metrics import Metrics
from ferrule.transports.http.endpoint.probes import SHARE, MetricsPage
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.settings import split_options

PROBES = ("/livez", "/readyz", "/metrics")
OPEN = "application/openmetrics-text; version=1.0.0"


def get(doors: Any, path: str, address: str = "127.0.0.1", query: str = "", **headers: str) -> Any:
    """Ask for a page from an address."""
    given = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = {name.encode(): value.encode() for name, value in given.items()}
    return doors.take(HttpRequest("GET", path, query, raw, b"", address, False))


@pytest.mark.parametrize("path", PROBES)
async def test_every_page_is_answered_to_get_and_head_only(endpoint: Any, app: Any, path: str) -> None:
    async with endpoint(app) as doors:
        assert doors.send("GET", path=path).status == 200
        assert doors.send("HEAD", path=path).status == 200
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = doors.send(method, path=path)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", PROBES)
async def test_pages_of_others_and_other_hosts_are_kept_out(endpoint: Any, app: Any, path: str) -> None:
    async with endpoint(app) as doors:
        assert doors.send("GET", path=path, headers={"origin": "https://evil.example"}).status == 403
        assert doors.send("GET", path=path, headers={"host": "evil.example"}).status == 403
    async with endpoint(app, allowed_origins=["https://board.example"]) as doors:
        answer = doors.send("GET", path=path, headers={"origin": "https://board.example"})
        assert answer.headers["access-control-allow-origin"] == "https://board.example"


async def test_what_is_off_is_not_there(endpoint: Any, app: Any) -> None:
    async with endpoint(app, health=False) as doors:
        assert [doors.send("GET", path=path).status for path in PROBES] == [404, 404, 200]
    async with endpoint(app, metrics=False) as doors:
        assert [doors.send("GET", path=path).status for path in PROBES] == [200, 200, 404]


async def test_without_metrics_nothing_is_recorded(endpoint: Any, workshop: Any) -> None:
    app = workshop()
    async with endpoint(app, metrics=False) as doors:
        await doors.client().call("echo", {"text": "a"}).whole()
        assert app.host.observer is None


async def test_a_route_of_the_program_takes_the_place_of_ours(endpoint: Any, workshop: Any) -> None:
    app = workshop()

    @app.custom_route("/livez")
    async def live(request: WebRequest) -> str:
        return "mine"

    async with endpoint(app) as doors:
        assert (await doors.send("GET", path="/livez").whole()).content == b"mine"
        assert doors.send("GET", path="/readyz").content == b"ready\n"


async def test_it_is_not_ready_while_it_drains_or_a_required_check_fails(endpoint: Any, workshop: Any) -> None:
    app = workshop()
    found = [CheckResult(), CheckResult("fail", "0/2", "refused by 10.0.0.7")]
    app.health.register("database", lambda: found[-1], interval=10, failures=1, required=True)
    async with endpoint(app) as doors:
        assert (doors.send("GET", path="/readyz").status, doors.send("GET", path="/livez").status) == (200, 200)
        await doors.settle()
        unready = doors.send("GET", path="/readyz")
        assert (unready.status, unready.headers["retry-after"], unready.content) == (503, "1", b"not ready: database\n")
        await doors.doors.drain(0)
        assert doors.send("GET", path="/readyz").content == b"not ready: draining, database\n"
        assert doors.send("GET", path="/livez").status == 200


async def test_it_is_not_ready_before_every_listener_is_bound(endpoint: Any, workshop: Any) -> None:
    app = workshop()
    async with endpoint(app) as doors:
        bound = app.host.binding("Tcp", lambda: None)
        assert doors.send("GET", path="/readyz").content == b"not ready: Tcp is not bound\n"
        bound()
        assert doors.send("GET", path="/readyz").status == 200


async def test_a_loop_that_was_blocked_is_not_alive(endpoint: Any, workshop: Any) -> None:
    app = workshop()
    async with endpoint(app) as doors:
        app.health.lag.record(6.0, asyncio.get_running_loop().time())
        answer = doors.send("GET", path="/livez")
        assert (answer.status, answer.content) == (503, b"not alive: the event loop does not turn as it should\n")
        await asyncio.sleep(11)
        assert doors.send("GET", path="/livez").status == 200


async def test_everything_is_told_to_this_machine_alone(endpoint: Any, workshop: Any) -> None:
    app = workshop()
    check = app.health.register("database", lambda: None, required=True)
    async with endpoint(app) as doors:
        for _ in range(3):
            check.record(CheckResult("fail", "0/2", "refused"), 0.0)
        for path in ("/livez", "/readyz"):
            answer = get(doors, path, query="verbose")
            assert answer.headers["content-type"] == "application/health+json"
            report = json.loads(answer.content)
            assert report["status"] == "fail"
            assert report["checks"]["database"][0]["output"] == "refused"
        assert report["notes"] == ["database"]
        others = [
            get(doors, "/readyz", address="192.0.2.1", query="verbose"),
            get(doors, "/readyz", query="verbose", x_forwarded_for="192.0.2.1"),
            get(doors, "/readyz", query="verbose", forwarded="for=192.0.2.1"),
        ]
        assert {other.content for other in others} == {b"not ready: database\n"}


async def test_both_formats_are_read_by_the_parsers_of_prometheus(endpoint: Any, workshop: Any) -> None:
    """OBSV-08."""
    app = workshop()
    async with endpoint(app) as doors:
        client = doors.client()
        for text in "ab":
            await client.call("echo", {"text": text}).whole()
        plain = get(doors, "/metrics")
        assert plain.headers["content-type"] == PROMETHEUS
        opened = get(doors, "/metrics", accept=OPEN)
        assert (opened.headers["content-type"], opened.headers["vary"]) == (OPENMETRICS, "Accept")
        for families in (read_prometheus(plain.content.decode()), read_openmetrics(opened.content.decode())):
            counted = {}
            for family in families:
                for sample in family.samples:
                    counted[sample.name, sample.labels.get("gen_ai_tool_name", "")] = sample.value
            assert counted["mcp_server_operation_duration_seconds_count", "echo"] == 2
            assert counted["ferrule_build_info", ""] == 1
            assert counted["process_resident_memory_bytes", ""] > 1_000_000
            assert counted["ferrule_streams", ""] == 0


async def test_metrics_are_for_whoever_may_call_and_health_is_for_everybody(endpoint: Any, workshop: Any) -> None:
    class Nobody(Verifier):
        def verify(self, request: Any) -> Any:
            raise Unauthorized("who are you?")

    async with endpoint(workshop(auth=Nobody())) as doors:
        assert [doors.send("GET", path=path).status for path in PROBES] == [200, 200, 401]


def test_a_text_is_kept_for_twenty_times_as_long_as_it_took() -> None:
    """OBSV-01: scraping takes a twentieth of the time, however often it is done."""
    now = [0.0]
    metrics = Metrics()
    written = []

    def slow() -> None:
        written.append(now[0])
        now[0] += 0.01

    metrics.before_reading(slow)
    page = MetricsPage(metrics, clock=lambda: now[0])
    for _ in range(500):
        page.answer("")
        now[0] += 0.001
    assert 2 <= len(written) <= 4
    assert now[0] / (0.01 * len(written)) > SHARE / 2
    metrics.gauge("ferrule_tasks").labels().set(7)
    now[0] += 1
    assert b"ferrule_tasks 7" in page.answer("")[1]


def test_five_thousand_series_are_written_in_a_moment() -> None:
    """SOK-07: and no turn of the loop takes long for it."""
    metrics = Metrics()
    served = metrics.histogram("mcp_server_operation_duration_seconds")
    for number in range(1_000):
        served.labels("tools/call", f"tool {number}", "", "tcp", "").observe(0.001)
    page = MetricsPage(metrics)
    before = time.process_time()
    _, text = page.answer(OPEN)
    took = time.process_time() - before
    assert 4_000 < text.count(b"\n") <= 5_200
    assert took < 0.25


def test_a_path_of_ours_cannot_be_the_path_of_mcp() -> None:
    with pytest.raises(SetupError, match=r"path cannot be /metrics, which shows metrics: .* metrics=False"):
        split_options({"path": "/metrics"})
    assert split_options({"path": "/metrics", "metrics": False})[0].path == "/metrics"


def test_a_server_on_a_port_is_scraped_and_probed() -> None:
    """TBEH-10: counters are right after a scripted exchange, over a real socket."""

    async def scrape(port: int, path: str) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body.decode()

    async def main() -> None:
        app = Server("app")

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        listener, ready = Http(port=0), asyncio.Event()
        serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
        await ready.wait()
        port = listener.address[1]
        async with Client(listener.url, mode="handshake") as client:
            for number in range(5):
                await client.call_tool("add", {"a": number, "b": 1})
            status, text = await scrape(port, "/metrics")
            assert status == 200
            found = {}
            for family in read_prometheus(text):
                for sample in family.samples:
                    labels = sample.labels
                    key = (sample.name, labels.get("gen_ai_tool_name") or labels.get("carrier", ""))
                    found[key] = sample.value
            assert found["mcp_server_operation_duration_seconds_count", "add"] == 5
            assert found["ferrule_sessions", "http"] == 1
            assert found["ferrule_sessions_opened_total", "http"] == 1
            assert found["ferrule_connections", ""] >= 1
            assert found["ferrule_calls_running", ""] == 0
        assert await scrape(port, "/readyz") == (200, "ready\n")
        await app.stop()
        await asyncio.wait_for(serving, 60)

    asyncio.run(main())
