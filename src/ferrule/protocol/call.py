"""One request being answered, who asked it, the era that decides about it, and what a session makes of a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Raw, Struct, UnsetType

from ferrule.errors import CapabilityNotSupported, Refusal
from ferrule.protocol.needs import Answers, Need, Question
from ferrule.protocol.tasks import TaskWish
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.methods import Method
from ferrule.schema.model import ClientCapabilities, Implementation, Meta
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.messages import Failure, Id, Success


class Revision(Struct, frozen=True):
    """What one protocol revision has and how its messages look."""

    version: str
    nameless_id: UnsetType | None
    """The id of an error whose request could not be read."""
    batches: bool = False
    two_way: bool = True
    """Whether either side may ask the other."""
    faults_in_results: bool = True
    """Whether bad tool arguments are answered with a result for the model instead of an error."""
    tasks_by_request: bool = False
    """Whether a request may ask to become a task: the first form of tasks, which a later revision made anew."""
    polls: bool = False
    """Whether a stream of events begins with an id, so that its reader can leave and come back."""
    absent: frozenset[str] = frozenset()
    """Methods this revision does not have yet."""
    trims: Mapping[type, Callable[[Any], Any]] = {}
    """How to write what newer revisions added: by type, the older form."""

    def trim(self, value: object) -> Any:
        """Return a value in the form this revision knows."""
        trim = self.trims.get(type(value))
        if trim is None:
            return value
        return trim(value)


class Peer(Struct, frozen=True, gc=False):
    """Who is at the other end, as far as the era lets us know."""

    revision: Revision
    capabilities: ClientCapabilities | ServerCapabilities
    implementation: Implementation | None = None
    log_level: str | None = None
    declared: Mapping[str, Any] = {}

    @property
    def version(self) -> str:
        """The protocol revision spoken with this peer."""
        return self.revision.version

    def extension(self, name: str) -> dict[str, object] | None:
        """Return the settings with which this peer declares an extension, None when it does not."""
        settings = (self.capabilities.extensions or {}).get(name)
        if isinstance(settings, dict):
            return settings
        return None


class Asker(Protocol):
    """The link a call came in on, as far as the rules need it."""

    def ask(self, method: str, params: object, channel: Channel) -> Awaitable[Raw]:
        """Send the peer a request of ours and wait for its result."""


class Agreement(Protocol):
    """What a session has agreed on, as far as an era needs it."""

    peer: Peer | None
    """Who made the handshake; None before it."""
    met_stateless: bool
    """Whether the last request that an era judged was one of the stateless era."""


class Era(Protocol):
    """The rules of one protocol generation."""

    @property
    def versions(self) -> tuple[str, ...]:
        """The revisions of this era we speak, newest first."""

    def admit(self, session: Agreement, row: Method, meta: Meta | None) -> Peer:
        """Return who asks, or raise Refusal."""

    def recall(self, call: Call) -> Answers:
        """Return what earlier rounds of this call have learned."""

    def require(self, call: Call, question: Question) -> None:
        """Raise CapabilityNotSupported unless the client can be asked this."""

    def ask(self, call: Call, missing: Sequence[tuple[str, Question]]) -> list[Awaitable[Raw]]:
        """Return what to wait for to learn the answers, or raise Need."""

    def pause(self, call: Call, need: Need) -> object:
        """Return the result that names what is missing."""

    def shape_result(self, call: Call, result: object) -> object:
        """Return a result in the form in which it is sent."""

    def lacking(self, failure: CapabilityNotSupported) -> Refusal:
        """Return the refusal for a client that lacks a capability the request needs."""

    def status(self, refusal: Refusal) -> int | None:
        """Return the HTTP status of a refusal; None for the one that goes with its code."""

    def code(self, refusal: Refusal) -> int:
        """Return the number of a refusal."""

    def data(self, refusal: Refusal) -> Any:
        """Return what a refusal tells besides its number and its message."""

    def task_wish(self, call: Call) -> TaskWish:
        """Return what a call says about becoming a task."""

    def task_demanded(self, tool: str) -> Refusal:
        """Refuse a call that must become a task and may not."""

    def admit_to_tasks(self, call: Call) -> None:
        """Raise Refusal unless the caller may ask about tasks."""


class Call(Struct, eq=False):
    """One request being answered: what, by whom, under which era, and the way back."""

    id: Id
    row: Method
    params: Any
    raw: Raw
    meta: Meta | None
    era: Era
    peer: Peer
    channel: Channel
    origin: Origin
    link: Asker
    retry: bool = False
    answers: Answers | None = None
    task: Any = None
    cancelled: bool = False
    reason: str = ""
    on_cancel: Callable[[], None] | None = None
    progressed: float | None = None
    as_task: Any = None
    """What carries this call on as a task, where it may become one."""
    pace: Any = None
    """What limits how often this call may tell of its progress and log, where its link does not."""
    expired: bool = False
    """Whether its time is up: it was answered so, and nobody waits for its handler any more."""
    began: float = 0.0
    """When it was admitted, on the clock of `time.monotonic`, where metrics or observers want to know; else 0."""
    held: int = 0
    """What its params are debited with while it stays beyond the turn in which it came (`ferrule.budgets`)."""
    observed: Any = None
    """What observers know of it until its end was reported to them; None without observers."""
    context: Any = None
    """The context its handler runs in, where a tracer made one for it; None for that of its link."""
    relayed: bool = False
    """Whether its result is another peer's, which nobody here has read."""

    @property
    def method(self) -> str:
        """The method's name."""
        return self.row.name


class Awaited(Struct, eq=False):
    """A request of ours the peer has not answered yet."""

    id: Id
    method: str
    waiter: Any
    started: float
    channel: Channel | None = None
    deadline: float | None = None
    limit: float | None = None
    timeout: float | None = None
    on_progress: Callable[[float, float | None, str | None], Any] | None = None
    progressed: float | None = None
    cancellable: bool = True
    on_notice: Callable[[str, Raw], None] | None = None
    subject: str | None = None
    """The tool, prompt or resource that was asked for."""
    caller: object = None
    """What whoever made the request gave with it, to know it by."""
    observed: Any = None
    """What observers know of it until its end was reported to them; None without observers."""

    @property
    def named(self) -> str:
        """The method, and what was asked for."""
        if self.subject is None:
            return self.method
        return f"{self.method} {self.subject!r}"

    def allow(self, now: float, timeout: float | None, limit: float | None) -> float:
        """Set how long to wait without news, and at most in all. Return when the time is up."""
        self.timeout = timeout
        if limit is not None:
            self.limit = now + limit
            if timeout is None or limit < timeout:
                timeout = limit
        assert timeout is not None, "a request without any limit needs no deadline"
        self.deadline = deadline = now + timeout
        return deadline

    def renew_deadline(self, now: float) -> float:
        """Begin its timeout anew, since there was news; its limit stays. Return when the time is up."""
        assert self.timeout is not None, "a request without a timeout has nothing to begin anew"
        deadline = now + self.timeout
        if self.limit is not None and self.limit < deadline:
            deadline = self.limit
        self.deadline = deadline
        return deadline


class Reply(Struct):
    """The peer answered one of our requests."""

    awaited: Awaited
    message: Success | Failure


class Withdrawn(Struct):
    """The peer will not answer one of our requests."""

    awaited: Awaited
    reason: str


class Cancel(Struct):
    """The peer does not want the answer to one of its requests any more."""

    call: Call
    reason: str


class Note(Struct):
    """The peer sent a notification."""

    method: str
    params: Raw
    channel: Channel
    link: Asker


class Ignored(Struct):
    """A message that asks nothing of us, and why it is worth a line in the log."""

    why: str
    level: str = "debug"


Event = Call | Reply | Withdrawn | Cancel | Note | Ignored
