"""Which proxy leads to a place: the one we are given, or the environment's."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from ferrule.errors import SetupError
from ferrule.transports.http.client.url import Place, place


def proxy_for(target: Place, given: str | bool, environment: Mapping[str, str]) -> Place | None:
    """Choose the proxy: a URL is taken as it is, True asks the environment, False means none."""
    if given is False:
        return None
    if given is True:
        url = _from_environment(target, environment)
        if not url:
            return None
    else:
        url = given
    try:
        proxy = place(url if "://" in url else f"http://{url}")
    except SetupError as reason:
        raise SetupError(f"proxy: {reason}") from None
    if proxy.scheme != "http":
        raise SetupError(f"the proxy {proxy.origin} must be reached by http://; what goes through it may be https://")
    return proxy


def _from_environment(target: Place, environment: Mapping[str, str]) -> str:
    if is_loopback(target.host) or _excepted(target, _variable(environment, "no_proxy")):
        return ""
    if target.scheme == "http" and "REQUEST_METHOD" in environment:
        # In a CGI program HTTP_PROXY is a header of the request: anyone could choose our proxy.
        return environment.get("http_proxy", "")
    return _variable(environment, f"{target.scheme}_proxy") or _variable(environment, "all_proxy")


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine by its name."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _excepted(target: Place, rules: str) -> bool:
    return any(_matches(target, rule.strip().lower()) for rule in rules.split(",") if rule.strip())


def _matches(target: Place, rule: str) -> bool:
    if rule == "*":
        return True
    try:
        return ip_address(target.host) in ip_network(rule.strip("[]"), strict=False)
    except ValueError:
        pass
    name, _, port = rule.partition(":")
    if port and port != str(target.port):
        return False
    name = name.removeprefix("*").lstrip(".")
    return bool(name) and (target.host == name or target.host.endswith(f".{name}"))
