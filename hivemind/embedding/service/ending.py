"""Ending the embedding processes of a hive, for who takes the hive down."""

from __future__ import annotations

import os

from hivemind.boundary import Unreadable
from hivemind.embedding.service.frames import Incoming, frame, receive
from hivemind.embedding.service.places import connect
from hivemind.embedding.service.starting import kill

__all__ = ["end_service"]

_ANSWER_S = 2.0


def end_service(folder: str | os.PathLike[str]) -> None:
    """End every embedding process that has its lock in `folder`, and wait for that; one that does not answer is killed."""
    folder = os.fspath(folder)
    try:
        kinds = sorted(name.removesuffix(".lock") for name in os.listdir(folder) if name.endswith(".lock"))
    except FileNotFoundError:
        return
    for kind in kinds:
        try:
            with connect(folder, kind, _ANSWER_S) as connection:
                connection.sendall(frame({"end": True}))
                incoming = Incoming()
                while True:  # until it closes the connection
                    receive(connection, incoming)
        except (ConnectionError, FileNotFoundError):
            continue
        except (OSError, Unreadable):
            kill(folder, kind)
