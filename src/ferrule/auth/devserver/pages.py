"""The pages a browser shows: to sign in, and to say what went wrong.

Rule: nothing runs in them, nothing frames them, and whatever a client said of itself is shown as text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from urllib.parse import urlsplit

from ferrule.transports.http.routes.web import WebResponse

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #5b6470; --page: #eef0f3; --card: #fff; --line: #d5dae1;
  --main: #2558c9; --on-main: #fff; --note: #8a5a00; --note-page: #fff4dc; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaee; --soft: #a3acb8; --page: #14171b; --card: #1e2227;
  --line: #373e47; --main: #86a8f7; --on-main: #10131a; --note: #f0c674; --note-page: #2e2817; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1.5rem; background: var(--page);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
main { width: 100%; max-width: 26rem; padding: 2rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .75rem; }
h1 { margin: 0 0 .25rem; font-size: 1.375rem; line-height: 1.25; overflow-wrap: anywhere; }
p { margin: 0 0 1rem; color: var(--soft); overflow-wrap: anywhere; }
p:last-child { margin: 0; }
p:has(+ ul) { margin-bottom: .375rem; font-size: .875rem; }
strong { color: var(--ink); }
.note { margin: 0 0 1.25rem; padding: .5rem .75rem; border-radius: .5rem; background: var(--note-page);
  color: var(--note); font-size: .875rem; }
ul { margin: 0 0 1.25rem; padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .375rem; }
li { padding: .125rem .5rem; border: 1px solid var(--line); border-radius: 1rem; font-size: .875rem;
  overflow-wrap: anywhere; }
label { display: block; margin-bottom: .25rem; font-weight: 600; }
input { width: 100%; padding: .625rem .75rem; border: 1px solid var(--line); border-radius: .5rem;
  background: var(--page); color: inherit; font: inherit; }
.choice { display: flex; gap: .75rem; margin-top: 1.25rem; }
button { flex: 1; padding: .625rem 1rem; border: 1px solid var(--line); border-radius: .5rem; background: none;
  color: inherit; font: inherit; font-weight: 600; cursor: pointer; }
button.main { order: 2; border-color: var(--main); background: var(--main); color: var(--on-main); }
:focus-visible { outline: 3px solid var(--main); outline-offset: 2px; }
"""

_STYLE_HASH = b64encode(sha256(STYLE.encode()).digest()).decode()

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{content}
</main>
</body>
</html>
"""

SIGN_IN = """<h1>Sign in to {client}</h1>
<p>{provider} sends you back to <strong>{back}</strong></p>
<p class="note">This is a development server. It knows no passwords.</p>
{scopes}
<form method="post">
<input type="hidden" name="ticket" value="{ticket}">
<label for="user">User name</label>
<input id="user" name="user" autocomplete="username" maxlength="200" placeholder="ada" required autofocus>
<div class="choice">
<button class="main" name="decision" value="allow">Allow</button>
<button name="decision" value="deny" formnovalidate>Deny</button>
</div>
</form>"""


CODE = """<h1>Sign in on another device</h1>
<p>{provider} asks for the code that your device shows</p>
<form method="get">
<label for="user_code">Code</label>
<input id="user_code" name="user_code" autocomplete="off" maxlength="20" placeholder="BCDF-GHJK" required autofocus>
<div class="choice">
<button class="main">Continue</button>
</div>
</form>"""

DEVICE = """<h1>Sign in to {client}</h1>
<p>Only go on if your device shows the code <strong>{code}</strong></p>
<p class="note">This is a development server. It knows no passwords.</p>
{scopes}
<form method="post">
<input type="hidden" name="user_code" value="{code}">
<label for="user">User name</label>
<input id="user" name="user" autocomplete="username" maxlength="200" placeholder="ada" required autofocus>
<div class="choice">
<button class="main" name="decision" value="allow">Allow</button>
<button name="decision" value="deny" formnovalidate>Deny</button>
</div>
</form>"""


def code_page(provider: str) -> WebResponse:
    """Return the page on which a user enters the code of another device."""
    return _page(f"Code - {provider}", CODE.format(provider=escape(provider)), 200, "'self'")


def device_page(provider: str, code: str, client: str, scopes: Sequence[str]) -> WebResponse:
    """Return the page on which a user signs in for another device."""
    content = DEVICE.format(client=escape(client), code=escape(code), scopes=_asked(scopes))
    return _page(f"Sign in - {provider}", content, 200, "'self'")


def done_page(provider: str, text: str) -> WebResponse:
    """Return the page that ends a login on another device."""
    return _page(f"Done - {provider}", f"<h1>{escape(provider)}</h1>\n<p>{escape(text)}</p>", 200, "'none'")


def _asked(scopes: Sequence[str]) -> str:
    if not scopes:
        return ""
    items = "".join(f"<li>{escape(scope)}</li>" for scope in scopes)
    return f"<p>It asks for</p>\n<ul>{items}</ul>"


def ask_page(provider: str, ticket: str, client: str, redirect_uri: str, scopes: Sequence[str]) -> WebResponse:
    """Return the page on which a user signs in and decides."""
    parts = urlsplit(redirect_uri)
    content = SIGN_IN.format(
        client=escape(client),
        provider=escape(provider),
        back=escape(parts.netloc or parts.scheme),
        scopes=_asked(scopes),
        ticket=escape(ticket),
    )
    # Chromium also applies form-action to where the answer to a form redirects.
    target = f"{parts.scheme}:"
    if parts.netloc:
        target = f"{parts.scheme}://{parts.netloc}"
    return _page(f"Sign in - {provider}", content, 200, f"'self' {target}")


def error_page(provider: str, text: str, status: int = 400) -> WebResponse:
    """Return a page that says what went wrong."""
    content = f"<h1>Sign-in is not possible</h1>\n<p>{escape(text)}</p>"
    return _page(f"Error - {provider}", content, status, "'none'")


def _page(title: str, content: str, status: int, form_action: str) -> WebResponse:
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {form_action}; "
        "frame-ancestors 'none'; base-uri 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        # A form of a page without a referrer has the origin `null`, which is refused as foreign.
        "Referrer-Policy": "same-origin",
        "X-Frame-Options": "DENY",
    }
    body = PAGE.format(title=escape(title), style=STYLE, content=content)
    return WebResponse(body, status, headers, media_type="text/html; charset=utf-8")
