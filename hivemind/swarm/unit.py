"""A systemd unit that keeps a hive up (`hivemind up --print-unit`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from hivemind.layout import Layout

_UNIT = """\
# A user service:
#   hivemind up --print-unit > ~/.config/systemd/user/hivemind.service
#   systemctl --user daemon-reload && systemctl --user enable --now hivemind
#   loginctl enable-linger    (then it also runs while nobody is logged in)
# API keys: EnvironmentFile= below [Service] names a file that nobody else can read.
[Unit]
Description=hivemind in {where}
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
WorkingDirectory={folder}
ExecStart={command}
# SIGTERM goes only to the supervisor, which ends its agents in order within 5 s. TimeoutStopSec kills the rest.
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=20
# Status 2 means wrong use (the hive is up already, or gone): a restart would not help.
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2

[Install]
WantedBy=default.target
"""


def unit(layout: Layout, agents: Sequence[str] = (), metrics: str | None = None) -> str:
    """Return the text of a unit that runs `hivemind up` with full paths of this Python and hive.

    `agents` are the agents to run (default: all), `metrics` the value of the option --metrics.
    """
    words = [sys.executable, "-m", "hivemind", "--hive", str(layout.root), "up"]
    words += ["--agents", ",".join(agents)] if agents else []
    words += ["--metrics", metrics] if metrics else []
    root = str(layout.root)
    return _UNIT.format(where=_escape_percent(root), folder=_escape_percent(root), command=" ".join(map(_quote, words)))


def _escape_percent(text: str) -> str:
    """Escape a value that systemd reads to the end of its line, in which only `%` is special."""
    return text.replace("%", "%%")


def _quote(word: str) -> str:
    """Return a word quoted for a command line in a systemd unit (systemd.service, *Command lines*)."""
    word = _escape_percent(word).replace("$", "$$")
    return (
        word if re.fullmatch(r"[\w@%+=:,./$-]+", word) else '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
