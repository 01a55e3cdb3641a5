"""Our server, used by the clients of the other SDKs.

Proves: TEST-08
"""

from __future__ import annotations

import matrix
import pytest

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("feature", matrix.FEATURES)
@pytest.mark.parametrize("run", matrix.THEIR_CLIENTS, ids=str)
def test_their_client_with_our_server(run, feature, check):
    check(run, feature)
