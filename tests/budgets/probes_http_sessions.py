"""Probes of how many sessions a server over HTTP keeps, and for how long."""

from __future__ import annotations

import asyncio

from http_bench import BOTH, Site, message, serving, stands
from table import no_bound, period, probe

from ferrule.transports.http.endpoint.sessions import MOST_UNUSED

no_bound("ferrule.transports.http.endpoint.sessions.ID_BYTES", "the length of an id that we make")


def use(site: Site, session: str) -> None:
    """Ask something in a session."""
    assert site.peer().ask("POST", "/mcp", message("ping", {}), accept=BOTH, mcp_session_id=session) == 200


def is_open(site: Site, session: str) -> bool:
    """Whether a session has not ended; looking does not use it."""
    return session in {each.id for each in site.endpoint.sessions}


@probe("ferrule.transports.http.endpoint.sessions.INTRODUCTION", clamps=True)
async def introduced(limit: int, size: int) -> bool:
    async with serving(max_sessions=2) as site:
        first = site.greeted(size)
        site.greeted()
        return is_open(site, first)


@probe("ferrule.transports.http.endpoint.sessions.MOST_UNUSED", lowered=10, clamps=True)
async def unused(limit: int, size: int) -> bool:
    """The limit is how many of all may be unused, the one that was opened last among them."""
    everyone = limit * MOST_UNUSED
    async with serving(max_sessions=everyone - 1) as site:
        opened = [site.greeted() for _ in range(everyone - 1)]
        fresh = min(size, everyone) - 1
        for session in opened[fresh:]:
            use(site, session)
            # The idlest: of sessions that are idle alike, any may go.
            site.session(session).used -= 1.0
        site.greeted()
        return all(is_open(site, session) for session in opened[:fresh])


@probe("ferrule.transports.http.endpoint.sessions.LEAST_SHARE", clamps=True)
async def looked_at(limit: int, size: int) -> bool:
    """The only session that is not in use is, of all, the one that is idle for the size-longest time."""
    place = min(size, 2 * limit)
    everyone = place + 10
    async with serving(max_sessions=everyone) as site:
        for number in range(1, everyone + 1):
            session = site.greeted()
            if number == place:
                idle = session
                use(site, session)
            else:
                assert site.stream(session).status == 200
            site.session(session).used = float(number)
        site.endpoint._streams.now = everyone + 1.0
        site.greeted()
        return not is_open(site, idle)


@period("EndpointSettings(session_idle_timeout=…)", lowered=1800.0)
async def idle(lasts: float, passes: float) -> bool:
    async with serving(session_idle_timeout=lasts) as site:
        session = site.greeted()
        return await stands(lambda: is_open(site, session), lasts, passes)


@period("EndpointSettings(session_lifetime=…)", lowered=4000.0)
async def lifetime(lasts: float, passes: float) -> bool:
    async with serving(session_lifetime=lasts) as site:
        session = site.greeted()

        def goes_on() -> bool:
            if is_open(site, session):
                use(site, session)
            return is_open(site, session)

        await asyncio.sleep(0)
        return await stands(goes_on, lasts, passes)
