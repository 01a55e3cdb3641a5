"""The answers of several workers as one."""

from __future__ import annotations

from ferrule.transports.http.endpoint.neighbours import WorkerHealth
from ferrule.transports.http.endpoint.worker_probes import not_ready, report_of

WELL = WorkerHealth([], {"status": "pass", "version": "3", "checks": {"memory": [{"status": "pass"}]}})
DRAINING = WorkerHealth(["draining"], {"status": "pass", "version": "3", "checks": {}})
POORLY = WorkerHealth(["database"], {"status": "fail", "version": "3", "checks": {"database": [{"status": "fail"}]}})


def test_a_server_is_ready_while_one_worker_is() -> None:
    assert not_ready({0: WELL, 1: DRAINING, 2: None}) == []
    assert not_ready({0: DRAINING, 1: DRAINING, 2: POORLY, 3: None}) == ["draining", "database", "does not answer"]


def test_a_report_shows_every_worker() -> None:
    assert report_of({0: WELL, 1: WELL})["status"] == "pass"
    some = report_of({0: WELL, 1: POORLY, 2: None})
    assert some["status"] == "warn"
    assert some["version"] == "3"
    assert some["checks"]["worker 0: memory"] == [{"status": "pass"}]
    assert some["checks"]["worker 1"] == [{"status": "fail", "output": "database"}]
    assert some["checks"]["worker 2"] == [{"status": "fail", "output": "does not answer"}]
    none = report_of({0: DRAINING, 1: POORLY})
    assert (none["status"], none["notes"]) == ("fail", ["draining", "database"])
