"""What every test run needs, however it was started."""

from __future__ import annotations

import signal

# A run in the background of a shell inherits SIGINT as ignored, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
