"""Which addresses may be asked: the URLs and addresses of attackers, one by one."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from ferrule.auth.address import AddressRefused, AddressRules, Destination
from ferrule.errors import SetupError

FORBIDDEN = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "198.18.0.1",
    "203.0.113.5",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "100::1",
    "2001:db8::1",
    "3fff::1",
    "4000::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::10.0.0.1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
]
"""Addresses that are not of the public internet, also where they hide in others."""

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    """AUT-06, SEC-6."""
    with pytest.raises(AddressRefused):
        AddressRules().judge_address(ip_address(address), "https://as.example.com")


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_url_with_such_an_address_is_refused_before_anything_is_resolved(address: str) -> None:
    """AUT-06, SEC-6."""
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(AddressRefused):
        AddressRules().judge_url(f"https://{host}/x")


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    AddressRules().judge_address(ip_address(address), "https://as.example.com")


@pytest.mark.parametrize(
    "url",
    [
        "http://as.example.com/",
        "ftp://as.example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "gopher://as.example.com/",
        "//as.example.com/",
        "as.example.com",
        "",
        "https://",
        "https:///path",
        "https://...",
        "https://user@as.example.com/",
        "https://user:secret@as.example.com/",
        "https://@as.example.com/",
        "https://as.example.com@127.0.0.1/",
        "https://as.example.com:0/",
        "https://as.example.com:65536/",
        "https://as.example.com:x/",
        "https://as.example.com:-1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0X7F.0.0.1/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://127.0.0.1./",
        "https://1.0x7f/",
        "https://[::1]./",
        "https://[fe80::1%25eth0]/",
        "https://[::1",
        "https://a%2eexample.com/",
        "https://as.example.com\\@127.0.0.1/",
        "https://as.example.com/\r\nHost: evil",
        "https://as.example.com/ x",
        "https://as.example.com/\t",
        "https://①②⑦.0.0.1/",
        "https://\uff41s.example.com/",
        "https://" + "a" * 300 + ".example.com/",
        "https://as.example.com/" + "a" * 2048,
    ],
)
def test_a_url_that_leads_astray_is_refused(url: str) -> None:
    """AUT-06, SEC-6, ACLI-19."""
    with pytest.raises(AddressRefused):
        AddressRules().judge_url(url)


def test_a_url_is_taken_apart_as_it_is_asked_for() -> None:
    there = AddressRules().judge_url("https://AS.example.com:8443/a/b?c=d#e")
    assert there == Destination("https", "as.example.com", 8443, "/a/b?c=d")
    assert there.origin == "https://as.example.com:8443"
    assert AddressRules().judge_url("https://as.example.com").origin == "https://as.example.com"
    assert AddressRules().judge_url("https://[2606:2800:220:1::1]/").origin == "https://[2606:2800:220:1::1]"


def test_this_machine_is_asked_where_that_is_allowed() -> None:
    rules = AddressRules(loopback=True)
    assert rules.judge_url("http://127.0.0.1:8000/x").port == 8000
    assert rules.judge_url("http://localhost/x").port == 80
    rules.judge_url("http://[::1]:8000/")
    for url in ("http://as.example.com/", "http://10.0.0.1/", "https://169.254.169.254/", "http://0.0.0.0/"):
        with pytest.raises(AddressRefused):
            rules.judge_url(url)


def test_a_name_of_this_machine_that_leads_elsewhere_is_not_asked_in_plain_text() -> None:
    """A resolver may answer anything for a name under localhost."""
    rules = AddressRules(loopback=True)
    there = rules.judge_url("http://x.localhost/")
    rules.judge_addresses(there, ["127.0.0.1", "::1"])
    with pytest.raises(AddressRefused, match="use https"):
        rules.judge_addresses(there, ["127.0.0.1", "8.8.8.8"])


def test_one_address_that_is_refused_refuses_the_name() -> None:
    """AUT-06."""
    rules = AddressRules()
    there = rules.judge_url("https://as.example.com/")
    rules.judge_addresses(there, ["8.8.8.8"])
    with pytest.raises(AddressRefused):
        rules.judge_addresses(there, ["8.8.8.8", "10.0.0.1"])


def test_private_networks_are_asked_where_they_are_named() -> None:
    rules = AddressRules(private=["10.0.0.0/8", "fd12::/16"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd12::1"):
        rules.judge_address(ip_address(address), "x")
    for address in ("192.168.0.1", "127.0.0.1", "fd13::1"):
        with pytest.raises(AddressRefused):
            rules.judge_address(ip_address(address), "x")
    with pytest.raises(SetupError, match="allow_private"):
        AddressRules(private=["10.0.0.1/8"])
