"""The command `hivemind`, also as `python -m hivemind`."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command in this process's arguments and return its exit status. Refuse to run on systems other than Linux."""
    if not sys.platform.startswith("linux"):  # before imports that exist only on Linux
        print(f"hivemind: runs on Linux only, and this is {sys.platform}", file=sys.stderr)  # noqa: T201
        return 2
    gc.disable()  # until the hive is opened (cli/command.py): imports create no garbage, and collecting takes time
    from hivemind.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
