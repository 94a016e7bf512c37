"""Snapshots: the folded state kept beside the log, so that opening does not read it all (spec 3, *Journal*)."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.coordination.fold import FOLD_VERSION
from hivemind.coordination.state import State
from hivemind.fs import Place, Segments, open_own, reached, write

__all__ = ["load_snapshot", "save_snapshot", "snapshot_path"]

_log = logging.getLogger(__name__)


def snapshot_path(folder: str) -> str:
    """The version stands in the name, so that programs of two versions leave each other's snapshots alone."""
    return os.path.join(folder, f"snapshot-{FOLD_VERSION}.json")


def save_snapshot(folder: str, state: State, place: Place, last_line: bytes) -> int:
    """Write the state at `place`; the log must be durable up to there. Returns its bytes, 0 if it was not written."""
    body = state.as_bytes()
    head = {
        "kind": "journal-snapshot",
        "version": FOLD_VERSION,
        "place": place,
        "line": hashlib.sha256(last_line).hexdigest(),
        "state": hashlib.sha256(body).hexdigest(),
    }
    content = json.dumps(head, separators=(",", ":")).encode() + b"\n" + body + b"\n"
    try:
        write(snapshot_path(folder), content)
    except OSError as error:  # it only saves time: the log has everything
        _log.warning("journal: no snapshot in %s (%s)", folder, error.strerror)
        return 0
    reached("journal.snapshot.written")
    return len(content)


def load_snapshot(log: Segments) -> tuple[State, Place, int] | None:
    """(state, place, size in bytes), or None if none fits the log: then the log is read from its beginning."""
    path = snapshot_path(log.folder)
    try:
        with boundary("snapshot", path), _without_collector():
            first_line, _, body = read_input(path).partition(b"\n")
            head = json.loads(first_line)
            place = Place(*head["place"])
            whole = head["state"] == hashlib.sha256(body[:-1]).hexdigest()
            if whole and _stands(log, place, head["line"]):
                return State.of(body[:-1]), place, len(first_line) + 1 + len(body)
    except FileNotFoundError:
        return None
    except Unreadable as error:
        _log.warning("journal: %s; reading the log instead", error)
        return None
    _log.warning("journal: %s does not fit the log; reading the log instead", path)
    return None


@contextmanager
def _without_collector() -> Iterator[None]:
    """Nothing that is read here is garbage: looking for some takes longer than the reading."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _stands(log: Segments, place: Place, digest: str) -> bool:
    """Whether the last event that the snapshot knows is where it was, in a log that may have been restored or cut."""
    try:
        file = open_own(log.path_of(place.first), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        line = os.pread(file, place.end - place.start, place.start)
    finally:
        os.close(file)
    return hashlib.sha256(line).hexdigest() == digest
