"""Types of arguments that many commands take."""

from __future__ import annotations

from typing import Annotated

from hivemind.cli.command import Arg

__all__ = ["Box", "Positive", "Share", "Text"]

Box = Annotated[str, Arg(default="human")]  # whose mailbox; may be left out before the arguments that must be given
Positive = Annotated[int, Arg(least=1)]
Share = Annotated[float, Arg(most=1)]
Text = Annotated[str, Arg(stdin=True)]
