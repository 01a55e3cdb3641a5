"""The kit can fail: each rule is broken by a carrier that breaks it, and by none that does not."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import broken_carriers as broken
import pytest
from our_carriers import OverTcp

from ferrule.testing.carrier_kit import RULES, Broken, Carrier, NotApplicable, carrier_tests, judge, life, prove
from ferrule.transports.tcp.connections import ServedChannel

SLOW = {"sixteen mebibytes", "back pressure back"}
"""What our own carriers show at length."""
SOON = 2.0
"""The patience with what never comes."""

BREAKS: list[tuple[str, Carrier, str]] = [
    ("ready", broken.Broken(broken.Late), "not connected within"),
    ("ready", broken.Broken(broken.OpeningTwice), "told 2 times"),
    ("information", broken.Misnamed(broken.passing), "'tcp', not 'pigeon'"),
    ("information", broken.NoAddress(broken.passing), "does not begin with"),
    ("loss", broken.Broken(broken.NeverLost, SOON), "do not learn that the wire was cut"),
    ("loss", broken.Broken(broken.LostTwice), "lost twice|told 2 times"),
    ("loss", broken.Broken(broken.LostWithoutWords), "not told why"),
    ("calls end", broken.Broken(broken.NeverLost, SOON), "pending calls do not end"),
    ("goodbye", broken.Broken(broken.NeverLost, SOON), "does not learn that the far side closed"),
    ("closing", broken.Broken(broken.NeverLost, SOON), "does not tell the receiver"),
    ("release", broken.Broken(broken.LeakingTask), "left behind: .*task"),
    ("release", broken.Broken(broken.LeakingTimer), "left behind: .*timer print"),
    ("release", broken.Broken(broken.LeakingDescriptor), "left behind: .*descriptor of null"),
    ("release", broken.Broken(broken.LeakingThread), "left behind: .*thread leaking"),
    ("recovery", broken.Broken(broken.SingleExchange), "used up"),
    ("draining", broken.Hasty(broken.passing), "a running call was not answered"),
    ("values", broken.Broken(broken.Rounding), "came back as"),
    ("values", broken.Broken(broken.Breaking), "raw line feed"),
    ("once", broken.Broken(broken.Dropping, SOON), "got no answer"),
    ("once", broken.Broken(broken.AskingTwice), "2000 were heard"),
    ("order out", broken.Broken(broken.Reordering), "in another order, from number 0 on"),
    ("order out", broken.Broken(broken.Duplicating), "1000 messages arrived twice"),
    ("order out", broken.Broken(broken.Dropping), "1000 messages were sent and 900 arrived"),
    ("order back", broken.Broken(broken.ReorderingBack), "in another order, from number 0 on"),
    ("push", broken.Broken(broken.Deaf, SOON), "not heard"),
    ("flood", broken.Broken(broken.Tiring, SOON), "got no answer"),
    ("peers", broken.Broken(broken.MixingUp), "the answer of another"),
    ("limit", broken.Limitless(), "over the limit was sent"),
    ("sixteen mebibytes", broken.Limitless(), "over the limit was sent"),
    ("their limit", broken.Lenient(broken.passing), "no answer to echo|was lost"),
    ("back pressure out", broken.Broken(broken.Boundless), "nobody had to wait"),
    ("crossing", broken.Broken(broken.Sulking, SOON), "both sides wait for the other"),
    ("waiting ends", broken.Broken(broken.Stranding, SOON), "waits for ever"),
    ("garbage", broken.Touchy(broken.passing), "was lost"),
]


@pytest.fixture(autouse=True)
def what_leaked_is_let_go_of() -> Iterator[None]:
    yield
    broken.let_go()


def named(name: str) -> Any:
    return next(rule for rule in RULES if rule.name == name)


@pytest.mark.parametrize(
    ("name", "carrier", "why"), BREAKS, ids=[f"{name}-{number}" for number, (name, _, _) in enumerate(BREAKS)]
)
def test_a_broken_carrier_is_caught_by_the_rule_it_breaks(
    name: str, carrier: Carrier, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TBEH-08: what cannot fail proves nothing."""
    # Nobody needs much patience with what is broken anyway.
    if why == "not connected within":
        monkeypatch.setattr(life, "READY_WITHIN", 0.5)
    monkeypatch.setattr(life, "SETTLE_WITHIN", 0.2)
    report = asyncio.run(judge(carrier, [named(name)]))
    assert [verdict.outcome for verdict in report.verdicts] == ["fail"], str(report)
    assert re.search(why, report.verdicts[0].why), report.verdicts[0].why


def test_what_somebody_else_makes_meanwhile_is_not_the_carrier_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something new each time, which stays: no leak of the carrier's, since it is another one each time."""
    monkeypatch.setattr(life, "SETTLE_WITHIN", 0.2)
    strangers = iter(("one", "two", "three", "four", "five"))
    stop, joined = threading.Event(), life.scene

    def disturbed(carrier: Carrier) -> Any:
        threading.Thread(target=stop.wait, name=next(strangers), daemon=True).start()
        return joined(carrier)

    monkeypatch.setattr(life, "scene", disturbed)
    asyncio.run(prove(named("release"), OverTcp()))
    stop.set()


def test_a_carrier_that_ends_with_its_peer_s_last_word_loses_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServedChannel, "eof_received", lambda channel: False)
    with pytest.raises(Broken, match="of three requests before the end"):
        asyncio.run(prove(named("half close"), OverTcp()))


def test_a_carrier_that_breaks_its_lines_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message over several lines is none on any of them."""

    def broken_lines(payloads: list[bytes], size: int) -> list[bytes]:
        return [payload.replace(b",", b",\n", 2) + b"\n" for payload in payloads]

    async def scene() -> None:
        class OnlyTheFarSide(OverTcp):
            patience = SOON

        await prove(named("lines"), OnlyTheFarSide())

    # What leaves as lines is joined in place; what does not goes through this function.
    not_as_lines = property(lambda self: False, lambda self, value: None)
    monkeypatch.setattr(ServedChannel, "_as_lines", not_as_lines, raising=False)
    monkeypatch.setattr("ferrule.transports.stream.frame_with_headers", broken_lines)
    with pytest.raises(AssertionError):
        asyncio.run(scene())


def test_a_carrier_whose_far_side_never_waits_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(channel: ServedChannel) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(ServedChannel, "wait_writable", at_once)
    with pytest.raises(Broken, match="nobody had to wait"):
        asyncio.run(prove(named("back pressure back"), OverTcp()))


def test_every_rule_is_broken_by_somebody() -> None:
    elsewhere = {"half close", "lines", "back pressure back"}
    assert {rule.name for rule in RULES} == {name for name, _, _ in BREAKS} | elsewhere


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name not in SLOW], ids=str)
def test_somebody_in_between_who_does_nothing_breaks_nothing(rule: Any) -> None:
    """The carriers above are broken by what they do, not by how they are built."""
    asyncio.run(prove(rule, broken.Broken(broken.passing)))


def test_the_guide_shows_every_rule() -> None:
    guide = Path(__file__).resolve().parents[3] / "docs" / "guides" / "own-transport.md"
    table = "".join(f"| {rule.name} | {rule.sentence} |\n" for rule in RULES)
    assert table in guide.read_text(encoding="utf-8")


def test_a_rule_has_a_sentence_and_the_requirements_it_proves() -> None:
    assert [rule.name for rule in RULES if not rule.sentence.endswith(".") or not rule.ids] == []
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_the_report_says_what_holds_what_does_not_and_what_does_not_apply() -> None:
    class Partly(broken.Broken):
        lacks: ClassVar = {"push": "nobody would listen"}

    rules = [named("values"), named("order out"), named("push")]
    report = asyncio.run(judge(Partly(broken.Reordering), rules))
    assert not report.ok
    assert [verdict.rule.name for verdict in report.broken] == ["order out"]
    lines = str(report).splitlines()
    assert lines[0] == "tcp"
    assert lines[1] == f"pass  values: {rules[0].sentence}"
    assert lines[2:4] == [
        f"fail  order out: {rules[1].sentence}",
        "      the messages arrived in another order, from number 0 on",
    ]
    assert lines[4:] == [
        f"n/a   push: {rules[2].sentence}",
        "      nobody would listen",
        "1 rules hold, 1 are broken, 1 do not apply",
    ]


def test_a_rule_that_comes_to_no_end_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    from ferrule.testing.carrier_kit import verdict as judging
    from ferrule.testing.carrier_kit.rule import rule

    @rule("TBEH-08")
    async def forever(carrier: Carrier) -> None:
        """Nothing ever happens."""
        await asyncio.Event().wait()

    monkeypatch.setattr(judging, "PATIENCE", 0.05)
    with pytest.raises(Broken, match="came to no end"):
        asyncio.run(prove(forever, OverTcp()))


def test_a_test_of_a_rule_that_does_not_apply_is_skipped_with_the_reason() -> None:
    test = carrier_tests(OverTcp())
    cases = test.pytestmark[0].args[1]
    assert [case.id for case in cases] == [f"tcp-{rule.name}" for rule in RULES]

    class Silent(OverTcp):
        lacks: ClassVar = {"push": "nobody would listen"}

    with pytest.raises(NotApplicable, match="nobody would listen"):
        asyncio.run(prove(named("push"), Silent()))
    with pytest.raises(pytest.skip.Exception, match="nobody would listen"):
        test(Silent(), named("push"))
    test(OverTcp(), named("push"))
