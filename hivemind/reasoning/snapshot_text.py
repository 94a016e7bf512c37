"""The snapshot of a graph as JSON text, written straight from the graph (README.md, *graph.json*).

It is what `json.dumps` makes of `to_dict`, and the tests hold the two together. Thousands of dicts come to be on that way
only to be written out and dropped: without them 10,000 nodes become text in two thirds of the time (`benchmarks.reasoning`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from hivemind.reasoning.node import ReasoningNode, meta_of
from hivemind.reasoning.notes import Notes
from hivemind.reasoning.snapshot import VERSION, beside, told_relation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hivemind.reasoning.edge import Edge
    from hivemind.reasoning.readable import ReadableGraph

__all__ = ["compact", "to_text"]

_quoted = encode_basestring
_short = lru_cache(maxsize=1024)(encode_basestring)  # roles and rationales: few, again and again
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def compact(value: Any) -> str:
    """A value as JSON without spaces."""
    return _encoder.encode(value)


def to_text(graph: ReadableGraph, more: Mapping[str, Any]) -> str:
    """The snapshot, and `more` fields after it, on one line."""
    nodes = graph.nodes
    parts = [f'{{"version":{VERSION},"nodes":{{']  # joined once: what is copied is megabytes
    parts.append(",".join([f'"{number}":{_node(node)}' for number, node in nodes.items()]))
    parts += ['},"edges":[', _edges(graph.structure.live(), nodes), "]"]
    if folded := graph.structure.folded():
        parts += [',"folded_edges":[', _edges(folded, nodes), "]"]
    for name, value in {**beside(graph), **more}.items():
        parts += [f",{_short(name)}:", compact(value)]
    parts.append("}\n")
    return "".join(parts)


def _node(node: ReasoningNode) -> str:
    thought, meta = node.thought, meta_of(node)
    said = _quoted(thought) if isinstance(thought, str) else _notes(thought)
    turns = ",".join([str(turn) for turn in node.related_turn_ids])
    active = "true" if node.active is True else compact(node.active)
    rest = f'"related_turn_ids":[{turns}],"active":{active}' + (f',"meta":{compact(meta)}' if meta else "")
    return f'{{"node_id":{node.node_id},"kind":"{node.kind._value_}","thought":{said},{rest}}}'


def _notes(notes: Iterable[Notes]) -> str:
    said = [f'{{"role":{_short(note.role)},"content":{_quoted(note.content)}}}' for note in notes]
    return f"[{','.join(said)}]"


def _edges(edges: Iterable[Edge], nodes: Mapping[int, ReasoningNode]) -> str:
    return ",".join([_edge(edge, nodes) for edge in edges])


def _edge(edge: Edge, nodes: Mapping[int, ReasoningNode]) -> str:
    relation = told_relation(edge, nodes)
    text = f'{{"src":{edge.src},"dst":{edge.dst},"rationale":{_short(edge.rationale)}'
    return f'{text},"relation":{_short(relation)}}}' if relation is not None else text + "}"
