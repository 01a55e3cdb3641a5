"""Rates are read as they are written, buckets are taken together or not at all, and the headers say what is left."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.balancing.rate import (
    Exhausted,
    Quota,
    Rate,
    limit_header,
    policy_header,
    take_together,
)
from ferrule.balancing.token_bucket import TokenBucket
from ferrule.errors import SetupError


class TestWriting:
    @pytest.mark.parametrize(
        ("text", "rate"),
        [
            ("100/min", Rate(100, 60, 100)),
            ("10/s burst 50", Rate(10, 1, 50)),
            (" 10 / s  burst 50 ", Rate(10, 1, 50)),
            ("0.5/s", Rate(0.5, 1, 1)),
            ("1/day", Rate(1, 86_400, 1)),
            ("1000/hour burst 10", Rate(1000, 3600, 10)),
            ("5/10s", Rate(5, 10, 5)),
            ("5/2 minutes", Rate(5, 120, 5)),
            ("2/d", Rate(2, 86_400, 2)),
            ("3/h", Rate(3, 3600, 3)),
            ("3/m", Rate(3, 60, 3)),
            ("3/seconds", Rate(3, 1, 3)),
            ("3/sec", Rate(3, 1, 3)),
            ("3/minute", Rate(3, 60, 3)),
        ],
    )
    def test_a_rate_is_read_as_it_is_written(self, text: str, rate: Rate) -> None:
        assert Rate.parse(text) == rate

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "100",
            "100/",
            "/min",
            "100/fortnight",
            "-1/s",
            "1e3/s",
            "10/s burst",
            "10/s 50",
            "\u0661/s",
            "10/ss",
            "10/ms",
        ],
    )
    def test_what_is_no_rate_is_refused_with_an_example(self, text: str) -> None:
        with pytest.raises(SetupError, match="written like 100/min or 10/s burst 50"):
            Rate.parse(text)

    @pytest.mark.parametrize("text", ["0/s", "1/0s", "1/s burst 0", "1/s burst 0.5"])
    def test_a_rate_that_could_not_work_is_refused(self, text: str) -> None:
        with pytest.raises(SetupError, match="more than 0 and a burst of at least 1"):
            Rate.parse(text)

    def test_a_bucket_of_it_lets_through_what_it_says(self) -> None:
        bucket = Rate.parse("60/min burst 2").bucket()
        assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
        assert bucket.take(1.0)
        assert not bucket.take(1.0)


class TestTogether:
    def test_all_must_have_a_token(self) -> None:
        tool = Quota("tool", Rate.parse("1/s burst 1"))
        principal = Quota("principal", Rate.parse("10/s burst 10"))
        assert take_together([principal, tool], 0.0) is None
        assert take_together([principal, tool], 0.0) == Exhausted("tool", 1.0)
        assert principal.bucket.left(0.0) == 9

    def test_the_longest_wait_is_told(self) -> None:
        slow = Quota("slow", Rate.parse("1/min"))
        quick = Quota("quick", Rate.parse("1/s"))
        assert take_together([quick, slow], 0.0) is None
        assert take_together([quick, slow], 0.0) == Exhausted("slow", 60.0)

    def test_a_bucket_that_is_never_filled_waits_for_ever(self) -> None:
        quota = Quota("once", Rate.parse("1/s"), TokenBucket(0, 1))
        assert take_together([quota], 0.0) is None
        assert take_together([quota], 1e9) == Exhausted("once", math.inf)

    def test_without_quotas_everything_passes(self) -> None:
        assert take_together([], 0.0) is None

    @given(
        st.lists(st.tuples(st.integers(1, 20), st.integers(1, 5)), min_size=1, max_size=4),
        st.lists(st.floats(0, 0.5), max_size=80),
    )
    def test_each_loses_one_token_or_none_does(self, rates: list[tuple[int, int]], pauses: list[float]) -> None:
        quotas = [Quota(f"q{number}", Rate(count, 1, burst)) for number, (count, burst) in enumerate(rates)]
        now = 0.0
        for pause in pauses:
            now += pause
            before = [quota.bucket.full_in(now) * quota.rate.per_second for quota in quotas]
            exhausted = take_together(quotas, now)
            after = [quota.bucket.full_in(now) * quota.rate.per_second for quota in quotas]
            lost = [then - first for first, then in zip(before, after, strict=True)]
            if exhausted is None:
                assert lost == pytest.approx([1.0] * len(quotas), abs=0.002)
            else:
                assert lost == pytest.approx([0.0] * len(quotas), abs=1e-9)
                assert take_together(quotas, now + exhausted.retry_after) is None
                now += exhausted.retry_after


class TestHeaders:
    def test_the_policy_says_what_is_allowed(self) -> None:
        quotas = [Quota("principal", Rate.parse("100/min")), Quota("tool", Rate.parse("10/s burst 50"))]
        assert policy_header(quotas) == '"principal";q=100;w=60, "tool";q=50;w=5'

    def test_the_limit_says_what_is_left_and_when_all_is_back(self) -> None:
        quota = Quota("principal", Rate.parse("100/min"))
        assert limit_header([quota], 0.0) == '"principal";r=100;t=0'
        for _ in range(58):
            take_together([quota], 0.0)
        assert limit_header([quota], 0.0) == '"principal";r=42;t=35'
        assert limit_header([quota], 18.0) == '"principal";r=72;t=17'
        assert limit_header([quota], 40.0) == '"principal";r=100;t=0'

    def test_names_are_quoted(self) -> None:
        quota = Quota('a "b" \\', Rate.parse("1/s"))
        assert policy_header([quota]) == '"a \\"b\\" \\\\";q=1;w=1'

    @pytest.mark.parametrize("name", ["", "ü", "a\r\nSet-Cookie: x"])
    def test_a_name_that_cannot_stand_in_a_header_is_refused(self, name: str) -> None:
        with pytest.raises(SetupError, match="printable ASCII"):
            Quota(name, Rate.parse("1/s"))
