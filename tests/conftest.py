"""What every test run needs, however it was started."""

from __future__ import annotations

import os
import signal

# A run in the background of a shell inherits SIGINT as ignored, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test starts an embedding process by accident; the tests of it name their embedder.
os.environ["HIVEMIND_EMBEDDER"] = "none"
