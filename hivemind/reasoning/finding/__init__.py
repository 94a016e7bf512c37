"""Finding nodes in the graphs of all tasks: a derived index beside the graphs' own files, by words and by meaning."""

from __future__ import annotations

from hivemind.reasoning.finding.graph_index import GraphIndex
from hivemind.reasoning.finding.hit import Found, NodeHit

__all__ = ["Found", "GraphIndex", "NodeHit"]
