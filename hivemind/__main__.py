"""The command `hivemind`, also as `python -m hivemind`."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command of this process's arguments; returns its exit status. Refuses systems other than Linux in words."""
    if not sys.platform.startswith("linux"):  # before anything is imported that those do not have
        print(f"hivemind: runs on Linux only, and this is {sys.platform}", file=sys.stderr)  # noqa: T201
        return 2
    gc.disable()  # until the hive is opened (cli/command.py): what is imported is no garbage, and looking for some takes time
    from hivemind.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
