"""The trace that a task belongs to, by W3C Trace Context. Every hive passes it on; a hive with telemetry makes spans of it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

from hivemind.frozen import frozen
from hivemind.pattern import pattern

TRACEPARENT = pattern(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


@frozen
class TraceContext:
    """A span in a trace. `parent` is the id of the span that contains it; a span without a parent begins a trace."""

    trace: str
    span: str
    parent: str | None = None
    flags: str = "01"

    @classmethod
    def parse(cls, text: object) -> TraceContext | None:
        """Return the span that `text` names if it is a valid `traceparent`, or None."""
        match = TRACEPARENT.fullmatch(text.strip()) if isinstance(text, str) else None
        return None if match is None else cls(match[1], match[2], None, match[3])

    @classmethod
    def begin(cls, traceparent: object) -> TraceContext:
        """Return a new span within the span that `traceparent` names. Begin a trace if it names none."""
        ids, outer = os.urandom(24).hex(), cls.parse(traceparent)
        return cls(ids[:32], ids[32:]) if outer is None else replace(outer, span=ids[32:], parent=outer.span)

    @classmethod
    def checked(cls, text: object) -> str | None:
        """Return `text` if it is a valid `traceparent`, else None."""
        span = cls.parse(text)
        return None if span is None else span.traceparent

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace}-{self.span}-{self.flags}"

    def child(self, *names: str) -> TraceContext:
        """Return a span within this one. Its id is computed from `names`, so the same names give the same span in every
        process.
        """
        digest = hashlib.blake2b("\0".join((self.span, *names)).encode(), digest_size=8)
        return replace(self, span=digest.hexdigest(), parent=self.span)
