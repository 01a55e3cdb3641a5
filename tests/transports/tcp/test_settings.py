"""Options: their defaults, and what is refused before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.errors import SetupError
from ferrule.settings.option import read
from ferrule.transports.tcp.listener import Tcp, Unix
from ferrule.transports.tcp.settings import TcpOptions, TcpSettings, UnixSettings, is_loopback
from ferrule.transports.tcp.transport import TcpTransport
from ferrule.wire.framing import LineFramer
from ferrule.wire.header_block import AutoFramer, HeaderFramer


def test_tcpt_03_a_server_has_these_defaults() -> None:
    """TCPT-03, LIMT-05: bound to loopback."""
    settings = TcpSettings()
    assert (settings.host, settings.port, settings.max_connections) == ("127.0.0.1", 5000, 1024)
    assert (settings.idle_timeout, settings.framing, settings.max_message_size) == (300.0, "line", 16 * 1024 * 1024)


def test_tcpt_04_a_client_has_these_defaults() -> None:
    """TCPT-04."""
    options = TcpOptions()
    assert (options.connect_timeout, options.keepalive, options.nodelay, options.buffer_size) == (
        5.0,
        True,
        True,
        65536,
    )


def test_a_socket_has_the_framing_that_was_chosen() -> None:
    assert [type(TcpSettings(framing=name).framer()) for name in ("line", "content-length", "auto")] == [
        LineFramer,
        HeaderFramer,
        AutoFramer,
    ]
    assert TcpSettings(max_message_size=2000).framer().max_size == 2000


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com", ""])
def test_tcp_07_a_listener_open_to_the_network_refuses_to_start_without_proof_or_an_explicit_word(host: str) -> None:
    """TCP-07."""
    with pytest.raises(SetupError, match="allow_remote=True"):
        Tcp(host=host)
    assert TcpSettings(host=host, allow_remote=True).host == host
    assert TcpSettings(host=host, certificate="a", client_ca="b").client_ca == "b"
    # A certificate of ours proves who we are, not who they are.
    with pytest.raises(SetupError, match="client_ca"):
        TcpSettings(host=host, certificate="a")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "LOCALHOST"])
def test_loopback_needs_no_proof(host: str) -> None:
    assert is_loopback(host)
    assert TcpSettings(host=host).host == host


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"framing": "words"}, "framing must be one of auto, content-length, line, not 'words'"),
        ({"on_oversize": "drop"}, "on_oversize must be one of close, skip, not 'drop'"),
        ({"port": -1}, "port must be from 0 to 65535, not -1"),
        ({"max_connections": 0}, "max_connections must be at least 1, not 0"),
        ({"idle_timeout": -1.0}, "idle_timeout must be more than 0 seconds or None, not -1.0"),
        ({"client_ca": "ca.pem"}, "client_ca without a certificate"),
        (
            {"hots": "127.0.0.1"},
            "tcp: unknown option 'hots'; did you mean 'host'\\?$",
        ),
        ({"certificate": "nowhere.pem"}, "tcp: the certificate 'nowhere.pem' is not a file"),
    ],
)
def test_an_option_nothing_could_work_with_is_refused_in_words(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        Tcp(**options)


def test_a_unix_listener_needs_a_path() -> None:
    with pytest.raises(SetupError, match="unix: a path is needed"):
        Unix()
    with pytest.raises(SetupError, match=r"unix: .*path"):
        read(UnixSettings, {}, "unix")


def test_a_client_cannot_wait_for_what_its_server_begins_with() -> None:
    with pytest.raises(SetupError, match="a client speaks first"):
        TcpTransport("tcp://localhost:5000", framing="auto")
