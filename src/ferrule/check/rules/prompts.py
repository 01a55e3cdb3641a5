"""Rules of prompts, and of completion for their arguments."""

from __future__ import annotations

from typing import Any

from ferrule.check.answer import Json, shown
from ferrule.check.case import MOST_CALLS, Case
from ferrule.check.rule import Verdict, broken, judged, passed, rule, skipped
from ferrule.check.rules.content import block_fault
from ferrule.codes import ErrorCode

PAGE = "server/prompts"
COMPLETION = "server/utilities/completion"
NO_PROMPT = "ferrule-check-no-such-prompt"
MOST_VALUES = 100


def arguments_of(prompt: Json) -> list[Any]:
    """Return the arguments a prompt takes."""
    found = prompt.get("arguments")
    if isinstance(found, list):
        return found
    return []


def needs_arguments(prompt: Json) -> bool:
    """Whether a prompt requires arguments."""
    return any(isinstance(each, dict) and each.get("required") is True for each in arguments_of(prompt))


@rule(
    "prompts/list-shape",
    "every prompt and each of its arguments has a name",
    fix='give every prompt and every argument a "name"',
    page=PAGE,
    capability="prompts",
)
async def list_shape(case: Case) -> Verdict:
    """Look at every prompt."""
    listing = await case.listing("prompts/list")
    faults = []
    for prompt in listing.items:
        if not isinstance(prompt, dict) or not isinstance(prompt.get("name"), str):
            faults.append(f"a prompt without a name: {shown(prompt)}")
            continue
        if "arguments" in prompt and not isinstance(prompt["arguments"], list):
            faults.append(f"prompt {shown(prompt['name'])}: arguments is {shown(prompt['arguments'])}")
        for argument in arguments_of(prompt):
            if not isinstance(argument, dict) or not isinstance(argument.get("name"), str):
                faults.append(f"prompt {shown(prompt['name'])}: an argument without a name: {shown(argument)}")
            elif not isinstance(argument.get("required", False), bool):
                faults.append(f"prompt {shown(prompt['name'])}: required is {shown(argument['required'])}")
    return judged(faults, f"{len(listing.items)} prompts")


@rule(
    "prompts/unknown",
    "a prompt that does not exist is refused with -32602",
    fix="answer with the error -32602",
    page=PAGE,
    level="should",
    capability="prompts",
)
async def unknown(case: Case) -> Verdict:
    """Get a prompt nobody has."""
    answer = await case.talk.request("prompts/get", {"name": NO_PROMPT})
    if answer.code == ErrorCode.INVALID_PARAMS:
        return passed()
    return broken(f"it was answered with {answer.told}")


@rule(
    "prompts/missing-arguments",
    "a prompt without the arguments it requires is refused with -32602",
    fix="answer with the error -32602 that names what is missing",
    page=PAGE,
    level="should",
    capability="prompts",
)
async def missing_arguments(case: Case) -> Verdict:
    """Get a prompt without what it requires."""
    for prompt in (await case.listing("prompts/list")).objects:
        if needs_arguments(prompt):
            answer = await case.talk.request("prompts/get", {"name": prompt.get("name")})
            if answer.code == ErrorCode.INVALID_PARAMS:
                return passed()
            return broken(f"prompt {shown(prompt.get('name'))} was answered with {answer.told}")
    return skipped("no prompt requires arguments")


@rule(
    "prompts/messages",
    "a prompt is a list of messages by user or assistant, each with one content block",
    fix='answer with "messages": [{"role": "user", "content": {…}}, …]',
    page=PAGE,
    capability="prompts",
)
async def messages(case: Case) -> Verdict:
    """Get the prompts that require nothing."""
    faults = []
    got = 0
    for prompt in (await case.listing("prompts/list")).objects:
        if needs_arguments(prompt) or got >= MOST_CALLS:
            continue
        answer = await case.talk.request("prompts/get", {"name": prompt.get("name")})
        result = answer.result
        if result is None or result.get("resultType", "complete") != "complete":
            continue
        got += 1
        found = result.get("messages")
        if not isinstance(found, list):
            faults.append(f"prompt {shown(prompt.get('name'))}: messages is {shown(found)}")
            continue
        faults.extend(filter(None, map(_message_fault, found)))
    if not got:
        return skipped("no prompt can be got without arguments")
    return judged(faults, f"{got} prompts")


def _message_fault(message: object) -> str:
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        return f"a message by nobody: {shown(message)}"
    return block_fault(message.get("content"))


async def _reference(case: Case) -> tuple[Json, str] | None:
    """Return something whose argument can be completed: a prompt, or a template."""
    if "prompts" in case.talk.capabilities:
        for prompt in (await case.listing("prompts/list")).objects:
            for argument in arguments_of(prompt):
                if isinstance(argument, dict) and isinstance(argument.get("name"), str):
                    return {"type": "ref/prompt", "name": prompt.get("name")}, argument["name"]
    return None


@rule(
    "completion/values",
    "completion brings at most 100 strings",
    fix='answer with "completion": {"values": […]}, at most 100, and hasMore for the rest',
    page=COMPLETION,
    capability="completions",
)
async def values(case: Case) -> Verdict:
    """Complete the first argument of a prompt."""
    found = await _reference(case)
    if found is None:
        return skipped("no prompt takes arguments")
    reference, argument = found
    params = {"ref": reference, "argument": {"name": argument, "value": ""}}
    answer = await case.talk.request("completion/complete", params)
    completion = (answer.result or {}).get("completion")
    given = completion.get("values") if isinstance(completion, dict) else None
    if not isinstance(given, list):
        return broken(f"the argument {shown(argument)} was completed with {answer.told}")
    if len(given) > MOST_VALUES:
        return broken(f"{len(given)} values came")
    if not all(isinstance(value, str) for value in given):
        return broken(f"a value is no string: {shown(given)}")
    return passed(f"{len(given)} values")


@rule(
    "completion/unknown-reference",
    "completion for a prompt that does not exist is refused with -32602",
    fix="answer with the error -32602",
    page=COMPLETION,
    level="should",
    capability="completions",
)
async def unknown_reference(case: Case) -> Verdict:
    """Complete an argument of a prompt nobody has."""
    params = {"ref": {"type": "ref/prompt", "name": NO_PROMPT}, "argument": {"name": "a", "value": ""}}
    answer = await case.talk.request("completion/complete", params)
    if answer.code == ErrorCode.INVALID_PARAMS:
        return passed()
    return broken(f"it was answered with {answer.told}")
