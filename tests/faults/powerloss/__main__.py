"""python -m tests.faults.powerloss: power losses, and the report's part of them."""

from __future__ import annotations

import sys

from tests.faults.powerloss.plan import main

sys.exit(main())
