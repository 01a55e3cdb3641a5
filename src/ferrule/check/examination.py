"""Running the rules against one server, era by era, each within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from ferrule.check.answer import Json
from ferrule.check.case import Case, OneConversation
from ferrule.check.era import BOTH, STATELESS, Era
from ferrule.check.report import Finding, Report, Spoken
from ferrule.check.rule import Rule, Verdict, broken, skipped
from ferrule.check.table import AUTHORIZATION, RULES
from ferrule.check.talk import META, EraNotSpoken, Unauthorized
from ferrule.check.wire import NoAnswer, Wire
from ferrule.errors import CarrierError, FerruleError, LinkLost

MOST_STEPS = 10
"""How many time limits of one request a rule may take."""
MOST_SILENT = 3
"""After how many rules in a row without an answer a server is left."""
OLD_TRANSPORT = ("sse",)
"""Transports older than the stateless era, which cannot carry it."""


class Wanted(Struct, frozen=True, kw_only=True):
    """What is to be checked, and how."""

    eras: Sequence[Era] = BOTH
    only: Sequence[str] = ()
    """Ids, areas or patterns of rules; empty for all."""
    seconds: float = 10.0
    """How long one answer may take."""
    calls: Mapping[str, Json] = {}
    """Tools that may be called though they do not say that they only read, with arguments."""

    def has(self, rule: Rule) -> bool:
        """Whether a rule is to be looked at."""
        if not self.only:
            return True
        return any(rule.area == each or fnmatchcase(rule.id, each) for each in self.only)


class Examination:
    """One check of one server."""

    def __init__(self, target: str, new_wire: Callable[[], Wire], wanted: Wanted) -> None:
        self._new_wire = new_wire
        self._wanted = wanted
        self._silent = 0
        self.report = Report(target=target, transport=new_wire().kind)

    async def run(self) -> Report:
        """Look at every rule; raise CarrierError for a server that cannot be reached, LinkLost for one of no era."""
        for era in self._wanted.eras:
            if era == STATELESS and self.report.transport in OLD_TRANSPORT:
                reason = f"{self.report.transport} is older than these versions"
                self.report.eras.append(Spoken(era=era, reason=reason))
                continue
            if await self._examine(era):
                break
        if not self.report.findings:
            raise LinkLost(self._unspoken())
        return self.report

    def _unspoken(self) -> str:
        told = []
        reasons = set()
        for spoken in self.report.eras:
            told.append(f"{spoken.era}: {spoken.reason or spoken.version}")
            reasons.add(spoken.reason.partition(": ")[2])
        if len(reasons) == 1 and all(reasons) and len(told) > 1:
            # It did not come to an era at all.
            told = [*reasons]
        hint = ""
        if any("HTTP 405" in spoken.reason for spoken in self.report.eras):
            hint = f". If it speaks the older HTTP+SSE, write sse+{self.report.target}"
        return f"{self.report.target} cannot be checked: {'; '.join(told)}{hint}"

    async def _examine(self, era: Era) -> bool:
        """Look at the rules of an era. Return whether there is nothing more to see in the other."""
        case = Case(self._new_wire, era, self._wanted.seconds, self._wanted.calls)
        try:
            await case.open()
            self._note(case)
            await case.require_tools()
            await self._look_at_all(case, RULES)
        except Unauthorized as refused:
            case.refusal = refused.refusal
            self.report.eras.append(Spoken(era=era, reason="HTTP 401: give --header 'Authorization: Bearer …'"))
            await self._look_at_all(case, AUTHORIZATION)
            return True
        except (EraNotSpoken, NoAnswer) as reason:
            self.report.eras.append(Spoken(era=era, reason=str(reason)))
        finally:
            await case.leave(case.talk)
        return False

    def _note(self, case: Case) -> None:
        """Note who the server says it is."""
        self._silent = 0
        opening = case.talk.opening
        self.report.eras.append(Spoken(era=case.era, version=case.talk.version))
        info = opening.get("serverInfo")
        if case.era == STATELESS:
            meta = opening.get("_meta")
            info = meta.get(f"{META}serverInfo") if isinstance(meta, dict) else None
        if isinstance(info, dict):
            self.report.server = {key: info[key] for key in ("name", "version") if isinstance(info.get(key), str)}

    async def _look_at_all(self, case: Case, rules: Sequence[Rule]) -> None:
        gone = ""
        for rule in rules:
            if case.era not in rule.pages or not self._wanted.has(rule):
                continue
            if gone:
                self._found(rule, case.era, skipped(gone))
                continue
            self._found(rule, case.era, await self._look(rule, case))
            if self._silent >= MOST_SILENT:
                gone = "the server was left: it stopped answering"
            elif case.talk.unreliable:
                gone = await self._reopen(case)

    async def _reopen(self, case: Case) -> str:
        """Open the conversation again. Return why that is impossible; empty where it is not."""
        try:
            await case.reopen()
        except (NoAnswer, EraNotSpoken, Unauthorized, CarrierError) as reason:
            return f"the server cannot be reached any more: {reason}"
        return ""

    async def _look(self, rule: Rule, case: Case) -> Verdict:
        if rule.kinds and self.report.transport not in rule.kinds:
            return skipped(f"it is about {', '.join(sorted(rule.kinds))}")
        if rule.capability and rule.capability not in case.talk.capabilities:
            return skipped(f"the server does not declare {rule.capability}")
        try:
            async with asyncio.timeout(MOST_STEPS * self._wanted.seconds):
                verdict = await rule.look(case)
        except (NoAnswer, TimeoutError) as reason:
            self._silent += 1
            case.talk.unreliable = True
            return broken(str(reason) or f"it took longer than {MOST_STEPS * self._wanted.seconds:g} s")
        except OneConversation as reason:
            return skipped(str(reason))
        except (EraNotSpoken, Unauthorized, FerruleError) as reason:
            return broken(str(reason))
        self._silent = 0
        return verdict

    def _found(self, rule: Rule, era: Era, verdict: Verdict) -> None:
        self.report.findings.append(
            Finding(
                rule=rule.id,
                title=rule.title,
                era=era,
                outcome=rule.outcome(verdict, era),
                level=rule.levels[era],
                reference=rule.reference(era),
                link=rule.link(era),
                seen=verdict.seen,
                fix=rule.fix,
            )
        )
