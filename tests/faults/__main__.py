"""python -m tests.faults: scenarios under faults, until the time is up; a report in JSON and Markdown."""

from __future__ import annotations

import sys

from .plan import main

sys.exit(main())
