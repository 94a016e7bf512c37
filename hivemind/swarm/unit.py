"""A unit for systemd that keeps a hive up (`hivemind up --print-unit`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from hivemind.layout import Layout

_UNIT = """\
# A service of a user's own:
#   hivemind up --print-unit > ~/.config/systemd/user/hivemind.service
#   systemctl --user daemon-reload && systemctl --user enable --now hivemind
#   loginctl enable-linger    (it then runs while nobody is logged in, too)
# Keys of models: EnvironmentFile=, a file that nobody else can read, below [Service].
[Unit]
Description=hivemind in {where}
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
WorkingDirectory={folder}
ExecStart={command}
# SIGTERM to the supervisor alone: it ends its agents in order, within 5 s. What is left after TimeoutStopSec is killed.
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=20
# 2 is wrong use (the hive is up already, or gone): starting again would not help.
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2

[Install]
WantedBy=default.target
"""


def unit(layout: Layout, agents: Sequence[str] = ()) -> str:
    """The text of the unit. Its command is this Python, this program and this hive, by their full paths."""
    words = [sys.executable, "-m", "hivemind", "--hive", str(layout.root), "up"]
    words += ["--agents", ",".join(agents)] if agents else []
    where = str(layout.root)
    return _UNIT.format(where=_plain(where), folder=_plain(where), command=" ".join(map(_quoted, words)))


def _plain(text: str) -> str:
    """A value that systemd takes to the end of its line: only `%` means something there."""
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """A word of a command line as systemd reads it (systemd.service, *Command lines*)."""
    word = _plain(word).replace("$", "$$")
    return (
        word if re.fullmatch(r"[\w@%+=:,./$-]+", word) else '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
