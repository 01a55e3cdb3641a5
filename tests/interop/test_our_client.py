"""Our client, with the servers of the other SDKs.

Proves: TEST-08
"""

from __future__ import annotations

import matrix
import pytest

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("feature", matrix.FEATURES)
@pytest.mark.parametrize("run", matrix.THEIR_SERVERS, ids=str)
def test_our_client_with_their_server(run, feature, check):
    check(run, feature)
