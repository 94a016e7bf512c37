"""Summaries: nodes that are inserted between sibling leaves and their parent, and can be removed again."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import dropwhile, takewhile

from hivemind.documents import tree
from hivemind.documents.edit import Edit, NodeDraft, sticky_run
from hivemind.documents.formats.outline import sentence_ends
from hivemind.documents.node import DocmemError, Node, NodeContext
from hivemind.fs import crash_point
from hivemind.words import STOP_WORDS

_WORD = re.compile(r"\w+")


def extract(texts: Sequence[str], max_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """Return the heaviest sentences of the texts that fit into `max_tokens`, in reading order; always at least one.

    A sentence weighs the sum of its distinct words' frequencies in all texts, divided by the square root of the number
    of these words. The weight of a text's first sentence is multiplied by 1.25. Equal texts yield equal sentences.
    """
    sentences = [(text_at, sentence) for text_at, text in enumerate(texts) for sentence in _sentences(text)]
    frequency = Counter(word for _, sentence in sentences for word in _words(sentence))
    seen: set[int] = set()
    ranking = []
    for position, (text_at, sentence) in enumerate(sentences):
        words = _words(sentence)
        weight = sum(frequency[word] for word in words) / (len(words) ** 0.5 or 1.0)
        ranking.append((-weight * (1.0 if text_at in seen else 1.25), position))
        seen.add(text_at)
    chosen_positions: list[int] = []
    remaining_tokens = max_tokens
    for _, position in sorted(ranking):
        cost = count_tokens(sentences[position][1]) + 1  # the space after the sentence
        if cost <= remaining_tokens or not chosen_positions:
            chosen_positions.append(position)
            remaining_tokens -= cost
    return " ".join(sentences[position][1] for position in sorted(chosen_positions))


def _sentences(text: str) -> list[str]:
    start, sentences = 0, []
    for end in sentence_ends(text):
        sentence = " ".join(text[start:end].split())
        if sentence:
            sentences.append(sentence)
        start = end
    return sentences


def _words(sentence: str) -> set[str]:
    return {word for word in _WORD.findall(sentence.casefold()) if word not in STOP_WORDS}


Writer = Callable[[Sequence[str], int], str]
"""A function that returns a summary of texts with at most so many tokens."""

_NEVER_FIRST = ("note", "frontmatter")
MAX_SUMMARY_TOKENS = 120  # about a paragraph


def is_summary(sql: sqlite3.Connection, node_id: str) -> bool:
    """Return True if the node was created as a summary of its children."""
    return sql.execute("SELECT 1 FROM summaries WHERE node_id = ?", (node_id,)).fetchone() is not None


def summary_ids(sql: sqlite3.Connection, nodes: Sequence[Node]) -> set[str]:
    """Return the ids of the nodes that were created as summaries or have the context type "summary"."""
    return {node.id for node in nodes if node.context_type == "summary" or is_summary(sql, node.id)}


def add_summary(edit: Edit, start_id: str, end_id: str, text: str, context: NodeContext) -> Node:
    """Create a summary, and move the sibling leaves from start to end below it.

    Siblings that stick to start or end are moved too. Raises DocmemError if start and end are not siblings, start comes
    after end, or a sibling has children.
    """
    start, end = tree.get(edit.sql, start_id), tree.get(edit.sql, end_id)
    if start.parent_id is None or start.parent_id != end.parent_id:
        raise DocmemError(f"nodes {start_id!r} and {end_id!r} are not siblings", remedy="choose children of one node")
    if start.order_value > end.order_value:
        raise DocmemError(f"node {start_id!r} comes after {end_id!r}", remedy="exchange start and end")
    start = tree.get(edit.sql, sticky_run(edit, start_id)[0])
    end = tree.get(edit.sql, sticky_run(edit, end_id)[-1])
    rows = edit.sql.execute(
        "SELECT id FROM nodes WHERE parent_id = ? AND order_value BETWEEN ? AND ? ORDER BY order_value",
        (start.parent_id, start.order_value, end.order_value),
    ).fetchall()
    for (member_id,) in rows:
        if tree.first_child(edit.sql, member_id):
            raise DocmemError(f"node {member_id!r} has children", remedy="choose leaves: only they can be summarised")
    assert start.parent_id is not None
    summary = edit.add(start.parent_id, edit.free_slot("child", start.parent_id)[1], NodeDraft(context, text))
    crash_point("documents.summary.added")
    for (member_id,) in rows:
        edit.change(tree.get(edit.sql, member_id), parent_id=summary.id)
    # Set the order last: a member that has not moved yet may have the midpoint as its order. No other sibling can.
    summary = edit.change(summary, order_value=(start.order_value + end.order_value) / 2)
    edit.sql.execute("INSERT INTO summaries VALUES (?, 0)", (summary.id,))
    return summary


def remove_summary(edit: Edit, summary_id: str, expected_hash: str | None) -> list[Node]:
    """Move a summary's children up to its parent, in order, delete the summary, and return the children.

    Raises DocmemError if the node is not a summary.
    """
    summary = edit.expect(summary_id, expected_hash)
    if summary.parent_id is None or not summary_ids(edit.sql, [summary]):
        raise DocmemError(
            f"node {summary_id!r} is not a summary", remedy="name a summary; hivemind doc tree shows them"
        )
    members = tree.children(edit.sql, summary_id)
    before, after = tree.siblings_around(edit.sql, summary)
    fits = all(
        (before is None or before.order_value < member.order_value)
        and (after is None or member.order_value < after.order_value)
        for member in members
    )
    if fits:  # the children keep the orders that they had before
        edit.change(summary, order_value=edit.free_slot("child", summary.parent_id)[1])
    previous = summary_id
    for member in members:
        order = member.order_value if fits else edit.free_slot("after", previous)[1]
        edit.change(member, parent_id=summary.parent_id, order_value=order)
        previous = member.id
        crash_point("documents.summary.given_back")
    edit.remove([summary_id])
    return tree.get_many(edit.sql, [member.id for member in members])


Material = tuple[Node | None, list[Node]]
"""A summary, None if it is not written yet, and the nodes to summarise."""


def read_material(sql: sqlite3.Connection, node_id: str) -> Material:
    """Return the children of a summary or, for another node, its first run of consecutive leaf children.

    The run does not begin with front matter or a note (a note is about the node before). Raises DocmemError if there is
    nothing to summarise.
    """
    node = tree.get(sql, node_id)
    members = tree.children(sql, node_id)
    is_existing_summary = bool(summary_ids(sql, [node]))
    if not is_existing_summary:
        interior = {child.id for child in members if tree.first_child(sql, child.id)}
        is_before = lambda child: child.id in interior or child.context_type in _NEVER_FIRST  # noqa: E731
        members = list(takewhile(lambda child: child.id not in interior, dropwhile(is_before, members)))
    if not members:
        raise DocmemError(
            f"node {node_id!r} has no leaves to summarise right below it",
            remedy="choose a heading with text right below it: hivemind doc tree shows them",
        )
    return (node if is_existing_summary else None), members


def write_summary(edit: Edit, material: Material, text: str) -> Node | None:
    """Write a summary of the material and return it. If the nodes have changed since they were read, do not write it and
    return None."""
    summary, members = material
    anchor = summary.id if summary else members[0].parent_id
    assert anchor is not None
    if tree.find(edit.sql, anchor) is None or read_material(edit.sql, anchor) != material:
        return None
    if summary is None:
        return add_summary(edit, members[0].id, members[-1].id, text, NodeContext("summary", "by", "summarize"))
    summary = edit.change(summary, text=text)
    edit.sql.execute("INSERT INTO summaries VALUES (?, 0) ON CONFLICT (node_id) DO UPDATE SET stale = 0", (summary.id,))
    return summary
