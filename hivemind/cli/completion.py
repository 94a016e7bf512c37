"""Completion for bash, zsh and fish: the shell calls `hivemind completion SHELL WORD…` to complete the last word."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal

from hivemind.cli.command import Command, Parameter, command
from hivemind.cli.open_hive import find_layout, without_hive
from hivemind.cli.output import print_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

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


@command("completion", without_hive, fixed_format=True)
def completion(hive_path: str | None, shell: Literal["bash", "zsh", "fish"], words: list[str] | None = None) -> None:
    """Print a script that completes commands, options, agents, tasks and mailboxes in your shell.

    arguments:
      SHELL  bash, zsh or fish
      WORD  the words typed so far; prints the completions of the last word

    examples:
      source <(hivemind completion bash)
      hivemind completion zsh > ~/.zfunc/_hivemind
      hivemind completion fish > ~/.config/fish/completions/hivemind.fish
    """
    for line in _complete(words, hive_path) if words else [_SCRIPTS[shell]]:
        print_line(line)


def _complete(typed_words: list[str], hive_path: str | None) -> list[str]:
    """Return the possible completions of the last typed word, sorted."""
    from hivemind.cli.main import MODULES, declared_commands

    *finished_words, prefix = typed_words
    command_words: list[str] = []
    remaining_words = iter(finished_words)
    for word in remaining_words:
        if word == "--hive":
            hive_path = next(remaining_words, hive_path)
        elif word != "--debug":
            command_words.append(word)
    commands = [*declared_commands([command_words[0]] if command_words and command_words[0] in MODULES else MODULES)]
    typed_command = next(
        (candidate for candidate in commands if tuple(command_words[: len(candidate.words)]) == candidate.words), None
    )
    if prefix.startswith("-") or typed_command is not None:
        candidates = _complete_parameter(typed_command, command_words, prefix, hive_path)
    else:
        candidates = (
            candidate.words[len(command_words)]
            for candidate in commands
            if candidate.words[: len(command_words)] == tuple(command_words)
        )
    return sorted({word for word in candidates if word.startswith(prefix)})


def _complete_parameter(
    typed_command: Command | None, command_words: list[str], prefix: str, hive_path: str | None
) -> Iterable[str]:
    """Return what may come next: values of the option before, names of options if `prefix` begins with `-`, or values
    of the next argument."""
    parameters = [] if typed_command is None else list(typed_command.parameters())
    options = {parameter.option: parameter for parameter in parameters if parameter.is_option}
    arguments = [parameter for parameter in parameters if not parameter.is_option]
    argument_count = 0
    pending_option: Parameter | None = None  # the option that takes the next word as its value
    for word in command_words[len(typed_command.words) if typed_command is not None else 0 :]:
        if pending_option is None and not word.startswith("-"):
            argument_count += 1
        option = options.get(word) if pending_option is None else None
        pending_option = option if option is not None and option.kind is not bool else None
    if pending_option is not None:
        return _parameter_values(pending_option, hive_path)
    if prefix.startswith("-"):
        return [
            *options,
            "--hive",
            "--debug",
            "--help",
            *(["--json"] if typed_command is not None and not typed_command.fixed_format else []),
        ]
    if arguments and (argument_count < len(arguments) or arguments[-1].is_list):
        return _parameter_values(arguments[min(argument_count, len(arguments) - 1)], hive_path)
    return []


def _parameter_values(parameter: Parameter, hive_path: str | None) -> Iterator[str]:
    """Yield a parameter's choices. If its metavar is AGENT, WHO, BOX or TASK, yield the hive's agents, mailboxes or tasks."""
    if typing.get_origin(parameter.kind) is Literal:
        yield from typing.get_args(parameter.kind)
    metavar = parameter.metavar.partition("[")[0]
    with suppress(UserError, OSError):
        layout = find_layout(hive_path)
        if metavar in ("AGENT", "WHO", "BOX"):
            yield from (path.stem for path in layout.agents.glob("*.yaml"))
        if metavar in ("WHO", "BOX"):
            yield HUMAN
        for folder in (layout.inbox, layout.active, layout.done, layout.failed) if metavar == "TASK" else ():
            for path in folder.glob("[!.]*"):
                if path.name != "README.md":
                    yield path.stem if folder == layout.inbox else path.name
