"""`ferrule completion SHELL`: a script that completes commands and options, from the same table as the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from ferrule.cli.main import COMMANDS, new_parser
from ferrule.cli.output import output_of

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

SHELLS = {
    "bash": "add to ~/.bashrc:  source <(ferrule completion bash)",
    "zsh": "add to ~/.zshrc, after compinit:  source <(ferrule completion zsh)",
    "fish": "run once:  ferrule completion fish > ~/.config/fish/completions/ferrule.fish",
}


class Option(Struct, frozen=True):
    """One option of a command."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...] = ()


class Described(Struct, frozen=True):
    """One command, or a command of a command, as a shell completes it."""

    words: tuple[str, ...]
    """The words that lead to it."""
    help: str
    options: tuple[Option, ...]
    choices: tuple[str, ...]
    """The words that may follow them."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule completion`."""
    parser.add_argument("shell", choices=tuple(SHELLS), help="; ".join(SHELLS.values()))


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Print the script of one shell."""
    output = output_of(options)
    described = every_command()
    if output.json:
        output.document(described)
        return
    output.text(SCRIPTS[options.shell](described))


def every_command() -> list[Described]:
    """Return all commands with their options; imports the module of each."""
    found: list[Described] = []
    for command in COMMANDS:
        parser, _ = new_parser(command)
        found.extend(_described((command.name,), command.help, parser))
    return found


def _described(words: tuple[str, ...], help_text: str, parser: CommandParser) -> list[Described]:
    actions, commands = parser.described()
    options: list[Option] = []
    choices: list[str] = [*commands, *parser.suggested]
    for action in actions:
        its_choices = tuple(map(str, action.choices or ()))
        if action.option_strings:
            takes_value = action.nargs != 0
            options.append(Option(tuple(action.option_strings), _plain(action.help), takes_value, its_choices))
        else:
            choices.extend(its_choices)
    found = [Described(words, help_text, tuple(options), tuple(choices))]
    for name, inner in commands.items():
        found.extend(_described((*words, name), "", inner))
    return found


def _plain(text: str | None) -> str:
    """Return a help text without the characters that mean something to a shell."""
    kept = (text or "").replace("%%", "%")
    for character in "'\"`$\\[]:":
        kept = kept.replace(character, " ")
    return " ".join(kept.split())


def _flags(command: Described) -> list[str]:
    """Return the names of all options of a command."""
    flags: list[str] = []
    for option in command.options:
        flags.extend(option.names)
    return flags


def _first_words(commands: list[Described]) -> list[Described]:
    """Return the commands that are one word."""
    return [command for command in commands if len(command.words) == 1]


def bash(commands: list[Described]) -> str:
    """Return the script for bash."""
    lines = [
        "_ferrule() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        '  case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in',
    ]
    # The longest first: `receipts verify` before `receipts`.
    for command in sorted(commands, key=_word_count, reverse=True):
        pattern = " ".join(command.words)
        if len(command.words) == 1:
            pattern += " "
        lines.append(f'    "{pattern}"*)')
        lines.append('      case "$previous" in')
        for option in command.options:
            if option.takes_value:
                names = "|".join(option.names)
                lines.append(f"        {names}) words={_quoted(option.choices)} ;;")
        lines.append(f"        *) words={_quoted([*command.choices, *_flags(command)])} ;;")
        lines.append("      esac ;;")
    commands_quoted = _quoted([command.words[0] for command in _first_words(commands)])
    lines += [
        f"    *) words={commands_quoted} ;;",
        "  esac",
        f'  if [ "$COMP_CWORD" -eq 1 ]; then words={commands_quoted}; fi',
        '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
        '  if [ "$COMP_CWORD" -gt 1 ] && [ "${#COMPREPLY[@]}" -eq 0 ]; then COMPREPLY=($(compgen -f -- "$word")); fi',
        "}",
        "complete -o filenames -F _ferrule ferrule",
        "",
    ]
    return "\n".join(lines)


def zsh(commands: list[Described]) -> str:
    """Return the script for zsh."""
    lines = ["#compdef ferrule", "_ferrule() {", "  local -a commands", "  commands=("]
    for command in _first_words(commands):
        lines.append(f"    '{command.words[0]}:{_plain(command.help)}'")
    lines += ["  )", "  if (( CURRENT == 2 )); then _describe command commands; return; fi", '  case "$words[2]" in']
    for command in _first_words(commands):
        name = command.words[0]
        lines.append(f"    {name})")
        for inner in commands:
            if len(inner.words) == 2 and inner.words[0] == name:
                condition = f'[[ "$words[3]" == {inner.words[1]} ]]'
                lines.append(f"      if {condition}; then _arguments {_zsh_options(inner)}; return; fi")
        lines.append(f"      _arguments {_zsh_options(command)} ;;")
    lines += ["  esac", "}", "compdef _ferrule ferrule", ""]
    return "\n".join(lines)


def _zsh_options(command: Described) -> str:
    parts: list[str] = []
    for option in command.options:
        value = ""
        if option.takes_value and option.choices:
            value = f":value:({' '.join(option.choices)})"
        elif option.takes_value:
            value = ":value:_files"
        for name in option.names:
            parts.append(f"'{name}[{option.help}]{value}'")
    if command.choices:
        parts.append(f"'1:choice:({' '.join(command.choices)})'")
    parts.append("'*:file:_files'")
    return " ".join(parts)


def fish(commands: list[Described]) -> str:
    """Return the script for fish."""
    lines: list[str] = []
    for command in _first_words(commands):
        name = command.words[0]
        lines.append(f"complete -c ferrule -n __fish_use_subcommand -f -a {name} -d '{_plain(command.help)}'")
    for command in commands:
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.words)
        start = f"complete -c ferrule -n '{seen}'"
        if command.choices:
            lines.append(f"{start} -a '{' '.join(command.choices)}'")
        for option in command.options:
            line = start
            for name in option.names:
                if name.startswith("--"):
                    line += f" -l {name[2:]}"
                else:
                    line += f" -s {name[1:]}"
            if option.takes_value:
                line += " -r"
            if option.choices:
                line += f" -f -a '{' '.join(option.choices)}'"
            lines.append(f"{line} -d '{option.help}'")
    lines.append("")
    return "\n".join(lines)


def _word_count(command: Described) -> int:
    return len(command.words)


def _quoted(words: Iterable[str]) -> str:
    """Return words as one text of bash."""
    return f'"{" ".join(words)}"'


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
