"""What every test stands on."""

from __future__ import annotations

import signal

import hypothesis
import pytest

from ferrule.testing import ERAS

# How long one example takes says more about who else uses the machine than about us.
hypothesis.settings.register_profile("ferrule", deadline=None)
hypothesis.settings.load_profile("ferrule")

# A shell starts background jobs with SIGINT ignored, and children inherit that: tests that press Ctrl-C would press it
# in vain. A handler of our own is not inherited, so that children start with the default again.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """Each protocol generation in turn: a handler cannot tell them apart."""
    return str(request.param)


@pytest.fixture
def virtual_time() -> None:
    """Let time pass only when nobody has anything left to do, where the folder's tests are run so."""
