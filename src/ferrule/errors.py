"""Every exception of Ferrule, as one tree.

FerruleError
├─ Refusal                      WE refuse THEIR request; the only errors that reach the wire, each with a code
│  ├─ ParseError  InvalidRequest  MethodNotFound  InvalidParams  Internal
│  ├─ NotInitialized  CapabilityOff  MessageTooLarge  Forbidden (Unauthorized)
│  ├─ Busy (ToolBusy  RateLimited  StoreUnavailable)
│  ├─ ToolFailed  ToolTimedOut  ResultTooLarge      where a tool's failure is an error with a number, not a result
│  ├─ HeaderMismatch  MissingCapability  UnsupportedVersion
│  └─ ResourceNotFound  ToolNotFound  PromptNotFound  InvalidUri  UrlElicitationRequired
├─ PeerError                    THEY refused OURS: code, message, data, as received
├─ CallFailed                   a call of ours got no answer
│  ├─ TimedOut (ConnectionTimedOut (TimedOutReconnecting))  LinkLost (OutcomeUnknown)
│  ├─ Cancelled  TooManyRounds  InvalidAnswer (ContentMismatch)
│  ├─ NotConnected  AlreadyInitialized  CapabilityNotSupported  Declined
│  └─ Overloaded  NoTarget      nobody may take it now; Busy too, so that a server that routes answers 503
├─ CarrierError                 could not connect, listen or start the child process
│  ├─ ConnectFailed  ChildFailed  InitializeFailed (VersionMismatch  InitializeTimedOut)
│  ├─ HttpFailed                an HTTP status or page where an answer should be; a CallFailed too
│  └─ AuthorizationFailed (LoginRequired)  no token for a server can be had; a CallFailed too
├─ EncodeError                  a message of ours cannot be written as JSON
├─ SupervisorFailed             a supervisor could not start its children, or gave one up
├─ AlreadyRegistered  NoRoute   of a registry: a name is taken; data has nowhere to go
└─ SetupError                   wrong use, raised before serving
ToolError                       raised by a tool for the model to read, and by a client whose tool call failed
"""

from __future__ import annotations

import math
import types
from typing import TYPE_CHECKING, Any, ClassVar

from ferrule.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


NO_HEADERS: Mapping[str, str] = types.MappingProxyType({})

MAX_QUOTE = 500
"""How much of a peer's own words an error repeats."""


def quoted(words: str) -> str:
    """Return a peer's words, or the beginning of them when they are many."""
    if len(words) <= MAX_QUOTE:
        return words
    return words[:MAX_QUOTE] + "…"


class FerruleError(Exception):
    """Anything Ferrule itself raises."""


class Refusal(FerruleError):
    """We refuse the peer's request: the only kind of error that is ever sent."""

    code: ClassVar[int] = ErrorCode.INTERNAL_ERROR.value
    text: ClassVar[str] = "Internal error"

    status: int | None = None
    """The HTTP status of the answer; None for the one that goes with the code."""
    stateless_status: ClassVar[int | None] = None
    """The same in the stateless era, where every answer may have a status of its own."""
    headers: Mapping[str, str] = NO_HEADERS
    """Headers of the HTTP answer, such as `WWW-Authenticate`."""

    def __init__(
        self,
        message: str = "",
        data: Any = None,
        *,
        code: int | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message or self.text)
        self.message = message or self.text
        self.data = data
        self.own_code = self.code if code is None else code
        if status is not None:
            self.status = status
        if headers is not None:
            self.headers = headers

    @classmethod
    def relay(cls, error: PeerError) -> Refusal:
        """Hand a peer's own error on to our caller, on purpose."""
        return cls(error.message, error.data, code=error.code)


class ParseError(Refusal):
    """The frame is not JSON."""

    code = ErrorCode.PARSE_ERROR.value
    text = "Parse error"


class InvalidRequest(Refusal):
    """The frame is JSON but not a JSON-RPC message we accept here."""

    code = ErrorCode.INVALID_REQUEST.value
    text = "Invalid request"


class MethodNotFound(Refusal):
    """No such method in this revision, or not one we offer."""

    code = ErrorCode.METHOD_NOT_FOUND.value
    text = "Method not found"


class InvalidParams(Refusal):
    """The params do not have the shape the method asks for."""

    code = ErrorCode.INVALID_PARAMS.value
    text = "Invalid params"


class Internal(Refusal):
    """Answering the request failed. Where `data` has a reference, the log has the details under it."""


class NotInitialized(InvalidRequest):
    """A request came before the handshake."""

    text = "Not initialized: send initialize first"


class CapabilityOff(MethodNotFound):
    """The method belongs to a capability this server does not declare."""

    text = "Capability not supported"


class MessageTooLarge(Refusal):
    """The message is longer than the limit."""

    code = ErrorCode.MESSAGE_TOO_LARGE.value

    def __init__(self, max_size: int) -> None:
        super().__init__(f"Message too large: the limit is {max_size} bytes", {"maxSize": max_size, "unit": "bytes"})
        self.max_size = max_size


class Busy(Refusal):
    """Too many calls of this peer are waiting already."""

    code = ErrorCode.SERVER_ERROR.value
    text = "Busy: too many requests are waiting"

    def __init__(self, message: str = "") -> None:
        super().__init__(message, {"retryAfter": 1})


class RateLimited(Busy):
    """This caller asks more often than it may."""

    stateless_status = 429

    def __init__(self, retry_after: float, headers: Mapping[str, str] = NO_HEADERS) -> None:
        if retry_after == float("inf"):
            super().__init__("Rate limit exceeded: no more calls are allowed")
            self.headers = headers
            return
        super().__init__(f"Rate limit exceeded: try again in {retry_after:.3g} s")
        self.data = {"retryAfter": round(retry_after, 3)}
        self.headers = {"Retry-After": str(math.ceil(retry_after)), **headers}


class StoreUnavailable(Busy):
    """The store that processes share cannot be reached, is full or refuses us; `reason` is for logs, not for peers."""

    text = "Unavailable: the store that this server shares with others cannot be used now"

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.message}: {self.reason}"


class ToolBusy(Busy):
    """As many calls of this tool run as may, and as many wait."""

    def __init__(self, what: str, running: int, waiting: int) -> None:
        super().__init__(f"Busy: {what or 'this'} has {running} calls running and {waiting} waiting; try again later")


class ToolFailed(Refusal):
    """A tool failed, told as an error with a number; without an error profile a result tells it."""

    text = "Tool execution failed"


class ToolTimedOut(Refusal):
    """A tool did not finish in time, told as an error."""

    text = "Tool execution timed out"


class ResultTooLarge(Refusal):
    """A tool's result is larger than it may be, told as an error."""

    text = "Result too large"


class Forbidden(Refusal):
    """The caller may not do this."""

    code = ErrorCode.INVALID_REQUEST.value
    text = "Forbidden"


class Unauthorized(Forbidden):
    """The caller has not proved who it is; the headers say how it can."""

    text = "Unauthorized"
    status = 401
    headers: Mapping[str, str] = types.MappingProxyType({"WWW-Authenticate": "Bearer"})


class HeaderMismatch(Refusal):
    """An HTTP header contradicts the body it mirrors."""

    code = ErrorCode.HEADER_MISMATCH.value
    text = "Header mismatch"


class MissingCapability(Refusal):
    """The request needs a client capability it did not declare."""

    code = ErrorCode.MISSING_CAPABILITY.value

    def __init__(self, required: Mapping[str, object], message: str = "") -> None:
        names = ", ".join(required)
        super().__init__(message or f"Missing required client capability: {names}", {"requiredCapabilities": required})


class UnsupportedVersion(Refusal):
    """The request names a protocol version we do not serve."""

    code = ErrorCode.UNSUPPORTED_VERSION.value

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"Unsupported protocol version {quoted(requested)!r}; supported: {', '.join(supported)}",
            {"supported": list(supported), "requested": quoted(requested)},
        )


class ResourceNotFound(Refusal):
    """No resource or template answers to this URI."""

    code = ErrorCode.RESOURCE_NOT_FOUND.value

    def __init__(self, uri: str, why: str = "") -> None:
        super().__init__(f"Resource not found: {quoted(uri)}" + (f" ({why})" if why else ""), {"uri": quoted(uri)})


class ToolNotFound(InvalidParams):
    """No tool of this name."""

    def __init__(self, tool: str, hint: str = "") -> None:
        super().__init__(f"Unknown tool: {quoted(tool)}{hint}", {"tool": quoted(tool)})


class PromptNotFound(InvalidParams):
    """No prompt of this name."""

    def __init__(self, prompt: str, hint: str = "") -> None:
        super().__init__(f"Unknown prompt: {quoted(prompt)}{hint}", {"prompt": quoted(prompt)})


class InvalidUri(InvalidParams):
    """The URI cannot be read as one."""

    def __init__(self, uri: str, why: str) -> None:
        super().__init__(f"Invalid URI: {why}", {"uri": quoted(uri)})


class UrlElicitationRequired(Refusal):
    """The request can go on only after the user has visited the given URLs."""

    code = ErrorCode.URL_ELICITATION_REQUIRED.value
    text = "URL elicitation required"


class PeerError(FerruleError):
    """The peer refused our request; code, message and data are as received."""

    def __init__(self, code: int, message: str, data: Any = None, *, method: str = "") -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data
        self.method = method

    @property
    def not_found(self) -> bool:
        """Whether the peer means that what we asked for does not exist, in any revision's number."""
        if self.method == "resources/read":
            return self.code in {ErrorCode.RESOURCE_NOT_FOUND.value, ErrorCode.RESOURCE_MISSING.value} or (
                self.code == ErrorCode.INVALID_PARAMS.value and isinstance(self.data, dict) and "uri" in self.data
            )
        return self.code == ErrorCode.METHOD_NOT_FOUND.value or (
            self.code
            in {ErrorCode.INVALID_PARAMS.value, ErrorCode.RESOURCE_NOT_FOUND.value, ErrorCode.PROMPT_MISSING.value}
            and "nknown" in self.message
        )


class CallFailed(FerruleError):
    """A call of ours got no answer."""


class TimedOut(CallFailed):
    """No answer came within the time limit. Where the peer was pinged, the message says that it still answers."""


class ConnectionTimedOut(TimedOut):
    """No answer came within the time limit, and the peer does not answer anything else either."""


class Cancelled(CallFailed):
    """The call was cancelled before it was answered."""


class TimedOutReconnecting(ConnectionTimedOut):
    """No answer came, the link is given up, and the client is opening a new one."""


class LinkLost(CallFailed):
    """The link ended before the answer came."""

    def __init__(self, message: str = "", *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the request may have gone out; what did not cannot have run."""


class OutcomeUnknown(LinkLost):
    """The connection was cut after the call was sent: it may have run or not, and it was not sent again."""


class TooManyRounds(CallFailed):
    """The server kept asking for input beyond the limit of rounds."""


class InvalidAnswer(CallFailed):
    """The peer's answer is not one its method can have."""


class ContentMismatch(InvalidAnswer):
    """What was read is not what its digest, its size or its entry says, so it was not used."""


class NotConnected(CallFailed):
    """The client is not open: use `async with Client(...)` or `await client.connect()`."""


class AlreadyInitialized(CallFailed):
    """The handshake has been made already."""


class CapabilityNotSupported(CallFailed):
    """The peer never declared the capability this call needs, so nothing was sent."""

    def __init__(self, capability: str, message: str = "") -> None:
        super().__init__(message or f"the peer does not declare the capability {capability!r}")
        self.capability = capability


class Overloaded(Busy, CallFailed):
    """Too many calls run and wait already; nothing was sent."""

    status = 503

    def __init__(self, retry_after: float = 1.0, message: str = "") -> None:
        seconds = max(1, math.ceil(retry_after))
        super().__init__(message or f"Overloaded: try again in {seconds} s")
        self.retry_after = seconds
        self.data = {"retryAfter": seconds}
        self.headers = {"Retry-After": str(seconds)}


class NoTarget(Busy, CallFailed):
    """None of the servers that could take the call may be used now; nothing was sent."""

    status = 503

    def __init__(self, reasons: Mapping[str, str], retry_after: float = 1.0) -> None:
        each = ", ".join(f"{name}: {reason}" for name, reason in reasons.items())
        super().__init__(f"No server can take this call: {quoted(each) or 'there are none'}")
        seconds = max(1, math.ceil(retry_after))
        self.reasons = dict(reasons)
        """Why each of them may not be used, by name."""
        self.retry_after = seconds
        self.data = {"retryAfter": seconds}
        self.headers = {"Retry-After": str(seconds)}


class Declined(CallFailed):
    """The person asked for input declined or cancelled."""

    def __init__(self, action: str) -> None:
        super().__init__(f"the request for input was answered with {action!r}")
        self.action = action


class CarrierError(FerruleError):
    """A transport could not connect, listen or start."""


class ConnectFailed(CarrierError):
    """Nobody answers at the target."""


class ChildFailed(CarrierError):
    """The child process could not be started, or ended before it said anything."""

    SAID = "its last words on stderr: "
    """What stands before them in the text of the error."""


class HttpFailed(CarrierError, CallFailed):
    """The HTTP server answered with a status, a page or a redirect instead of an answer."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        """The answer's headers, names in lower case: a 401 says there how to be allowed."""


class AuthorizationFailed(CarrierError, CallFailed):
    """There is no token for the server: it, or its authorization server, is not what it must be, or refused us."""


class LoginRequired(AuthorizationFailed):
    """Somebody has to log in, and there is nobody here who could; the sentence names the command to run."""


class InitializeFailed(CarrierError):
    """The handshake failed."""


class VersionMismatch(InitializeFailed):
    """The two sides share no protocol version."""


class InitializeTimedOut(InitializeFailed):
    """The peer did not answer the handshake in time."""


class EncodeError(FerruleError):
    """A message of ours cannot be written as JSON."""


class SupervisorFailed(FerruleError):
    """A supervisor could not start its children, or restarted them too often and gave up."""

    def __init__(self, path: str, reason: str, *, gave_up: bool = False) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        """Which supervisor: its name behind those of the supervisors above it, as `app/listeners`."""
        self.reason = reason
        self.gave_up = gave_up
        """Whether it restarted a child too often; else a child could not be started, or an end was final."""


class AlreadyRegistered(FerruleError):
    """A registry has an entry of this kind and name, and what registered it is alive."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} is registered already: unregister it first, or choose another name")
        self.kind = kind
        self.name = name


class NoRoute(FerruleError):
    """A registry knows nobody who takes this data."""


class SetupError(FerruleError):
    """Wrong use, found before anything is served: a duplicate tool, a bad signature, a bad option."""


class ToolError(Exception):
    """A tool failed in a way the model should read; on the client, a tool call that failed so."""

    def __init__(self, message: str = "", *, result: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.result = result
