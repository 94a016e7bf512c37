"""Loggers that import `logging` at their first message: a short command writes none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

    logger = logging.getLogger
else:

    class logger:  # noqa: N801 - is called like logging.getLogger
        """A logger of `logging.getLogger` with all of its methods."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, method: str) -> Any:
            from logging import getLogger

            return getattr(getLogger(self._name), method)
