"""One process that embeds for all agents of a hive, and the client that starts it and does without it."""

from __future__ import annotations

from hivemind.embedding.service.client import SharedEmbedder
from hivemind.embedding.service.ending import end_service

__all__ = ["SharedEmbedder", "end_service"]
