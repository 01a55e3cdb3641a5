"""The pages of the proxy: consent, and what is said when a login cannot go on. No scripts, nothing from elsewhere.

Rule: everything that comes from outside is escaped, here, and stands in text or in a quoted attribute.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from urllib.parse import urlsplit

from ferrule.auth.proxy.clients import ProxyClient
from ferrule.auth.redirect_uri import is_loopback_uri
from ferrule.transports.http.routes.web import WebResponse

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5a6475; --line: #dde2ea; --page: #f3f5f8; --card: #fff;
  --accent: #2456c7; --on-accent: #fff; --warn: #7a4b00; --warn-page: #fff4dd; --warn-line: #efd39a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf3; --soft: #a3adbd; --line: #323a47; --page: #12161d; --card: #1b212b;
    --accent: #7aa2ff; --on-accent: #0d1526; --warn: #ffd58a; --warn-page: #33290f; --warn-line: #5c4a1d; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1.5rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { width: 100%; max-width: 27rem; padding: 2rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 14px; box-shadow: 0 8px 30px rgb(0 0 0 / 8%); }
h1 { margin: 0 0 .5rem; font-size: 1.35rem; line-height: 1.3; overflow-wrap: anywhere; }
p { margin: 0 0 1rem; color: var(--soft); overflow-wrap: anywhere; }
dl { margin: 1.25rem 0; border-top: 1px solid var(--line); }
dl div { padding: .7rem 0; border-bottom: 1px solid var(--line); }
dt { font-size: .8rem; color: var(--soft); }
dd { margin: .1rem 0 0; overflow-wrap: anywhere; }
dd small { display: block; color: var(--soft); }
ul { margin: .2rem 0 0; padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .4rem;
  max-height: 12rem; overflow-y: auto; }
li { padding: .1rem .6rem; border: 1px solid var(--line); border-radius: 999px; font: .85rem ui-monospace, monospace; }
a { color: var(--accent); }
.warning { padding: .75rem 1rem; color: var(--warn); background: var(--warn-page); border: 1px solid var(--warn-line);
  border-radius: 10px; font-size: .9rem; }
form { display: flex; flex-wrap: wrap-reverse; gap: .75rem; margin-top: 1.5rem; }
button { flex: 1 1 auto; padding: .7rem .9rem; font: inherit; font-weight: 600; border-radius: 10px; cursor: pointer;
  border: 1px solid var(--line); background: transparent; color: var(--ink); }
button.main { flex-grow: 3; border-color: var(--accent); background: var(--accent); color: var(--on-accent); }
button:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
"""

STYLE_HASH = b64encode(sha256(STYLE.encode()).digest()).decode()
# form-action is left out: browsers apply it to every redirect after the form, to the provider and back to the client.
POLICY = f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; frame-ancestors 'none'; base-uri 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    # Not no-referrer: with it a browser sends `Origin: null` with the form.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
HTML = "text/html; charset=utf-8"
MAX_SCOPES = 50
START_AGAIN = "<p>Close this page and start again from your application.</p>"

LOCAL_WARNING = (
    "This application runs on your computer, where any program could use its name. "
    "Continue only if you have just started it yourself."
)


def page(
    title: str, body: str, status: int = 200, headers: Mapping[str, str | Sequence[str]] | None = None
) -> WebResponse:
    """Return a page; `body` is HTML, `title` is text."""
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>"
    )
    return WebResponse(text, status, {**HEADERS, **(headers or {})}, HTML)


def failure_page(
    why: str, status: int = 400, headers: Mapping[str, str] | None = None, *, way_back: str = ""
) -> WebResponse:
    """Return the page that says why a login cannot go on, with the way back to the client where there is one."""
    body = f"<h1>This login cannot go on</h1><p>{escape(why)}</p>"
    if way_back:
        link = f'<a href="{escape(way_back)}" rel="noreferrer">{escape(shown_host(way_back))}</a>'
        body += f"<p>You can go back to {link}, if you came from there.</p>"
    else:
        body += START_AGAIN
    return page("Login failed", body, status, headers)


def consent_page(
    client: ProxyClient,
    redirect: str,
    *,
    server: str,
    provider: str,
    scopes: Sequence[str],
    ticket: str,
    headers: Mapping[str, str],
) -> WebResponse:
    """Return the page that asks a user whether a client may use a server for them (MCP SEC-2)."""
    rows = [
        _row("Application", _bold(client.name), _origin(client)),
        _row("You will be sent back to", _bold(shown_host(redirect)), escape(redirect.partition("?")[0])),
        _row(f"{escape(provider)} will be asked for", _list(scopes)),
    ]
    warning = ""
    if not redirect.startswith("https://"):
        warning = f'<p class="warning">{LOCAL_WARNING}</p>'
    body = (
        f"<h1>Allow {_bold(client.name)} to use {escape(server)}?</h1>"
        f"<p>It will act for you there. You log in with {escape(provider)} next.</p>"
        f"<dl>{''.join(rows)}</dl>{warning}"
        '<form method="post" action="consent">'
        f'<input type="hidden" name="ticket" value="{escape(ticket)}">'
        '<button name="answer" value="deny">Cancel</button>'
        f'<button class="main" name="answer" value="allow">Continue with {escape(provider)}</button></form>'
    )
    return page(f"Allow access to {server}?", body, headers=headers)


def shown_host(uri: str) -> str:
    """Return where a redirect URI leads, for people."""
    parts = urlsplit(uri)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https"):
        return f"the application {parts.scheme}:"
    if is_loopback_uri(uri):
        return f"{host} (this computer)"
    return host


def _origin(client: ProxyClient) -> str:
    if client.origin:
        return f"Described by {escape(client.origin)}"
    return "It gave this name itself; nobody has checked it"


def _row(title: str, value: str, note: str = "") -> str:
    if note:
        value += f"<small>{note}</small>"
    return f"<div><dt>{title}</dt><dd>{value}</dd></div>"


def _bold(text: str) -> str:
    # bdi: a name written from right to left does not turn the sentence around.
    return f"<strong><bdi>{escape(text)}</bdi></strong>"


def _list(scopes: Sequence[str]) -> str:
    if not scopes:
        return "who you are"
    items = []
    for scope in scopes[:MAX_SCOPES]:
        items.append(f"<li>{escape(scope)}</li>")
    if len(scopes) > MAX_SCOPES:
        items.append(f"<li>and {len(scopes) - MAX_SCOPES} more</li>")
    return f"<ul>{''.join(items)}</ul>"
