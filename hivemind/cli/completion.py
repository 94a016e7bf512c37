"""Completion in bash, zsh and fish: a shell asks `hivemind completion SHELL WORD…` what the last word may become."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal

from hivemind.cli.command import Command, Parameter, command
from hivemind.cli.opening import anywhere, layout_of
from hivemind.cli.output import say
from hivemind.errors import UserError
from hivemind.layout import HUMAN, Layout

_SCRIPTS = {
    "bash": """_hivemind() {
    local IFS=$'\\n'
    COMPREPLY=($(hivemind completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o bashdefault -o default -F _hivemind hivemind""",
    "zsh": """#compdef hivemind
_hivemind() {
    local -a found=("${(@f)$(hivemind completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n $found ]] && compadd -- $found || _files
}
compdef _hivemind hivemind""",
    "fish": """function __hivemind
    set -l typed (commandline -opc) (commandline -ct)
    hivemind completion fish -- $typed[2..] 2>/dev/null
end
complete -c hivemind -a '(__hivemind)'""",
}


@command("completion", anywhere, own_form=True)
def completion(at: str | None, shell: Literal["bash", "zsh", "fish"], words: list[str] | None = None) -> None:
    """Print a script that completes commands, options, agents, tasks and mailboxes in your shell.

    arguments:
      SHELL  bash, zsh or fish
      WORD  what was typed so far: prints what the last word may become

    examples:
      source <(hivemind completion bash)
      hivemind completion zsh > ~/.zfunc/_hivemind
      hivemind completion fish > ~/.config/fish/completions/hivemind.fish
    """
    for line in _candidates(words, at) if words else [_SCRIPTS[shell]]:
        say(line)


def _candidates(typed: list[str], at: str | None) -> list[str]:
    """What the last of the typed words may become, sorted."""
    from hivemind.cli.main import MODULES, declared

    *before, begun = typed
    words: list[str] = []
    rest = iter(before)
    for word in rest:
        if word == "--hive":
            at = next(rest, at)
        elif word != "--debug":
            words.append(word)
    known = [*declared([words[0]] if words and words[0] in MODULES else MODULES)]
    one = next((one for one in known if tuple(words[: len(one.words)]) == one.words), None)
    if begun.startswith("-") or one is not None:
        found = _of_command(one, words, begun, at)
    else:
        found = (one.words[len(words)] for one in known if one.words[: len(words)] == tuple(words))
    return sorted({word for word in found if word.startswith(begun)})


def _of_command(one: Command | None, words: list[str], begun: str, at: str | None) -> Iterable[str]:
    """Values of the option before, options, or values of the next argument."""
    parameters = [] if one is None else list(one.parameters())
    options = {parameter.option: parameter for parameter in parameters if parameter.named}
    arguments = [parameter for parameter in parameters if not parameter.named]
    given = 0
    awaits: Parameter | None = None  # the option whose value comes next
    for word in words[len(one.words) if one is not None else 0 :]:
        if awaits is None and not word.startswith("-"):
            given += 1
        option = options.get(word) if awaits is None else None
        awaits = option if option is not None and option.kind is not bool else None
    if awaits is not None:
        return _values(awaits, at)
    if begun.startswith("-"):
        return [*options, "--hive", "--debug", "--help", *(["--json"] if one is not None and not one.own_form else [])]
    if arguments and (given < len(arguments) or arguments[-1].many):
        return _values(arguments[min(given, len(arguments) - 1)], at)
    return []


def _values(parameter: Parameter, at: str | None) -> Iterator[str]:
    """What an argument may be: its choices, or, by its metavar, names that the hive has; files are the shell's."""
    if typing.get_origin(parameter.kind) is Literal:
        yield from typing.get_args(parameter.kind)
    word = parameter.metavar.partition("[")[0]
    with suppress(UserError, OSError):
        layout = layout_of(at)
        if word in ("AGENT", "WHO", "BOX"):
            yield from (path.stem for path in layout.agents.glob("*.yaml"))
        if word in ("WHO", "BOX"):
            yield HUMAN
        if word == "TASK":
            yield from _tasks(layout)


def _tasks(layout: Layout) -> Iterator[str]:
    for folder in (layout.inbox, layout.active, layout.done, layout.failed):
        for path in folder.glob("[!.]*"):
            if path.name != "README.md":
                yield path.stem if folder == layout.inbox else path.name
