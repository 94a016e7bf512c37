"""Loggers that import `logging` only at their first message, because most short commands log nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

    logger = logging.getLogger
else:

    class logger:  # noqa: N801 - is called like logging.getLogger
        """A logger with all methods of `logging.getLogger(name)`, which is called at the first message."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, method: str) -> Any:
            from logging import getLogger

            return getattr(getLogger(self._name), method)
