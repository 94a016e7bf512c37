"""Folders with an embedding process that ends with the test."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind.embedding.service import lock_of


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="embed-", dir="/tmp") as name:  # a socket's path must be short
        yield Path(name)
        holder = lock_of(name, "hashing").holder()
        if holder is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(str(holder["pid"])), signal.SIGKILL)
