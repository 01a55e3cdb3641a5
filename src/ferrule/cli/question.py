"""A server's questions, asked on the terminal.

Rule: what is asked is shown as the server's, and a person can always say no: an empty line leaves a field out, Ctrl-D
declines the whole question.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from ferrule.cli.arguments import READERS, UNREADABLE, kinds_of
from ferrule.cli.output import Output
from ferrule.schema.elicitation import ElicitParams
from ferrule.supervision.logs import cut, one_line

TRIES = 3
"""How often a field is asked for that was filled in wrongly."""
MAX_FIELDS = 50
MAX_CHOICES = 100
"""How many choices of a field are shown."""
MAX_ANSWER = 64 * 1024


class TerminalUser:
    """Answers a server's questions by asking the person at the terminal."""

    def __init__(self, output: Output, stdin: IO[str] | None = None) -> None:
        self._output = output
        self._stdin = stdin or sys.stdin

    @property
    def present(self) -> bool:
        """Whether somebody can answer: stdin is a terminal."""
        return self._stdin.isatty()

    def answer(self, question: ElicitParams) -> Any:
        """Ask for the fields of a form; return what was filled in, or that the person declines."""
        schema: Mapping[str, Any] = question.requested_schema or {}
        fields = schema.get("properties")
        required = schema.get("required")
        if not isinstance(required, list):
            required = []
        self._output.note(f"The server asks: {cut(question.message)}")
        if not isinstance(fields, Mapping) or not fields:
            return self._yes("Do you accept?")
        if set(fields) <= set(required):
            self._output.note("(Ctrl-D declines)")
        else:
            self._output.note("(an empty line leaves out a field that is not needed, Ctrl-D declines)")
        filled: dict[str, Any] = {}
        for name, rules in list(fields.items())[:MAX_FIELDS]:
            try:
                value = self._field(name, rules if isinstance(rules, Mapping) else {}, name in required)
            except EOFError:
                self._output.note("")
                return "decline"
            if value is not UNREADABLE:
                filled[name] = value
        return filled

    def visit(self, question: ElicitParams) -> Any:
        """Ask whether to open a page the server names; return whether the person agrees."""
        self._output.note(f"The server asks you to open a page: {question.message}")
        self._output.note(f"  {question.url}")
        agreed = self.agrees("Open it in the browser?")
        if agreed:
            import webbrowser

            webbrowser.open(str(question.url))
        return agreed

    def agrees(self, question: str) -> bool:
        """Return whether the person says yes; the end of the input is a no."""
        try:
            return self._yes(question)
        except EOFError:
            return False

    def _yes(self, question: str) -> bool:
        return self._line(f"{question} [y/N] ").strip().lower() in ("y", "yes")

    def _line(self, prompt: str) -> str:
        self._output.clear_bar()
        self._output.err.write(prompt)
        self._output.err.flush()
        line = self._stdin.readline(MAX_ANSWER)
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def _field(self, name: str, rules: Mapping[str, Any], required: bool) -> Any:
        """Ask for one field; UNREADABLE where it is left out."""
        label = one_line(str(rules.get("title") or name))
        if rules.get("description"):
            label += f" ({one_line(str(rules['description']))})"
        choices = choices_of(rules)
        several = rules.get("type") == "array"
        for number, (_, shown) in enumerate(choices[:MAX_CHOICES], 1):
            self._output.note(f"  {number}. {one_line(shown)}")
        if len(choices) > MAX_CHOICES:
            self._output.note(f"  … and {len(choices) - MAX_CHOICES} more")
        if "default" in rules:
            label += f" [{one_line(str(rules['default']))}]"
        needed = required and "default" not in rules
        for _ in range(TRIES):
            text = self._line(f"{label}: ").strip()
            if not text and not needed:
                return UNREADABLE
            if text:
                value = _read(text, rules, choices, several=several)
                if value is not UNREADABLE:
                    return value
            self._output.note(f"  that is not an answer: {_wanted(rules, choices, several=several)}")
        raise EOFError


def choices_of(rules: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return the values a field may have, each with what it is called; none where it may have any."""
    if rules.get("type") == "array" and isinstance(rules.get("items"), Mapping):
        rules = rules["items"]
    titled = rules.get("oneOf") or rules.get("anyOf")
    found: list[tuple[Any, str]] = []
    if isinstance(titled, list):
        for each in titled:
            if isinstance(each, Mapping) and "const" in each:
                found.append((each["const"], str(each.get("title") or each["const"])))
    elif isinstance(rules.get("enum"), list):
        values = rules["enum"]
        names = rules.get("enumNames")
        if not isinstance(names, list) or len(names) != len(values):
            names = values
        for value, shown in zip(values, names, strict=True):
            found.append((value, str(shown)))
    return found


def _read(text: str, rules: Mapping[str, Any], choices: Sequence[tuple[Any, str]], *, several: bool) -> Any:
    if several:
        picked = []
        for part in text.split(","):
            value = _picked(part.strip(), choices) if choices else part.strip()
            if value is UNREADABLE:
                return UNREADABLE
            picked.append(value)
        return picked
    if choices:
        return _picked(text, choices)
    kinds = kinds_of(rules, {})
    if "string" in kinds or "" in kinds:
        return text
    if kinds == {"boolean"} and text.lower() in ("y", "n"):
        return text.lower() == "y"
    for kind in ("boolean", "integer", "number"):
        if kind in kinds:
            value = READERS[kind](text)
            if value is not UNREADABLE:
                return value
    return UNREADABLE


def _picked(text: str, choices: Sequence[tuple[Any, str]]) -> Any:
    """Return a choice by its value, by what it is called or by its number."""
    for value, shown in choices:
        if text in (str(value), shown):
            return value
    if text.isdigit() and len(text) < 4 and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1][0]
    return UNREADABLE


def _wanted(rules: Mapping[str, Any], choices: Sequence[tuple[Any, str]], *, several: bool) -> str:
    if choices and several:
        return "give numbers or names, with commas between them"
    if choices:
        return "give a number or a name"
    kinds = kinds_of(rules, {})
    if kinds == {"boolean"}:
        return "give y or n"
    return f"give {' or '.join(sorted(kinds))}"
