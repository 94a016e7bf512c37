"""`python -m hivemind` is the command `hivemind`."""

from __future__ import annotations

import sys

from hivemind.cli import main

sys.exit(main())
