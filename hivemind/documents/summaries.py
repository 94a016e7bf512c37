"""Summaries: visible, reversible compression of siblings, by a mind or by extract (seed 003, *Summarization*; spec 5)."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Container, Sequence
from itertools import dropwhile, takewhile

from hivemind.documents import tree
from hivemind.documents.edit import Draft, Edit, sticky_run
from hivemind.documents.formats.outline import sentence_ends
from hivemind.documents.node import Context, DocmemError, Node
from hivemind.frozen import frozen
from hivemind.fs import reached
from hivemind.words import STOP_WORDS

_WORD = re.compile(r"\w+")


def extract(texts: Sequence[str], max_tokens: int, count: Callable[[str], int]) -> str:
    """At most `max_tokens` tokens of whole sentences out of the texts, in reading order; the same for the same texts.

    A sentence weighs as much as its words are frequent in the whole (each once, by the square root of its length); the
    first sentence of each text has a small advantage. At least one sentence is given, unless there is none.
    """
    sentences = [(text_at, sentence) for text_at, text in enumerate(texts) for sentence in _sentences(text)]
    frequency = Counter(word for _, sentence in sentences for word in _words(sentence))
    seen: set[int] = set()
    ranked = []
    for place, (text_at, sentence) in enumerate(sentences):
        words = _words(sentence)
        weight = sum(frequency[word] for word in words) / (len(words) ** 0.5 or 1.0)
        ranked.append((-weight * (1.0 if text_at in seen else 1.25), place))
        seen.add(text_at)
    chosen: list[int] = []
    left = max_tokens
    for _, place in sorted(ranked):
        cost = count(sentences[place][1]) + 1  # the space between two
        if cost <= left or not chosen:
            chosen.append(place)
            left -= cost
    return " ".join(sentences[place][1] for place in sorted(chosen))


def _sentences(text: str) -> list[str]:
    start, found = 0, []
    for end in sentence_ends(text):
        sentence = " ".join(text[start:end].split())
        if sentence:
            found.append(sentence)
        start = end
    return found


def _words(sentence: str) -> set[str]:
    return {word for word in _WORD.findall(sentence.casefold()) if word not in STOP_WORDS}


Writer = Callable[[Sequence[str], int], str]
"""Writes a summary: (the members' texts in order, most tokens) -> text. `extract` is the one without a mind."""

_NO_BEGINNING = ("note", "frontmatter")
LONGEST = 120  # tokens: a paragraph (seed 003, *Tree Structure*)


def is_summary(sql: sqlite3.Connection, node_id: str) -> bool:
    """Whether the node was made as a summary of its children."""
    return sql.execute("SELECT 1 FROM summaries WHERE node_id = ?", (node_id,)).fetchone() is not None


def summary_ids(sql: sqlite3.Connection, nodes: Sequence[Node]) -> set[str]:
    """Which of the nodes are summaries: made as one, or of context_type "summary"."""
    return {node.id for node in nodes if node.context_type == "summary" or is_summary(sql, node.id)}


def stale(sql: sqlite3.Connection) -> list[Node]:
    """The summaries whose children have changed since they were written, oldest first."""
    rows = sql.execute("SELECT node_id FROM summaries WHERE stale").fetchall()
    found = tree.get_many(sql, (row[0] for row in rows))
    return sorted(found, key=lambda node: (node.updated_at, node.id))


def add_summary(edit: Edit, start_id: str, end_id: str, text: str, context: Context) -> Node:
    """Put a new node between the siblings from start to end and their parent.

    Siblings that are stuck to one of them go along. Raises DocmemError unless all are leaves under one parent and
    start stands no later than end.
    """
    start, end = tree.get(edit.sql, start_id), tree.get(edit.sql, end_id)
    if start.parent_id is None or start.parent_id != end.parent_id:
        raise DocmemError(f"nodes {start_id!r} and {end_id!r} are not siblings", mend="summarise children of one node")
    if start.order_value > end.order_value:
        raise DocmemError(f"node {start_id!r} stands after {end_id!r}", mend="exchange start and end")
    start = tree.get(edit.sql, sticky_run(edit, start_id)[0])
    end = tree.get(edit.sql, sticky_run(edit, end_id)[-1])
    rows = edit.sql.execute(
        "SELECT id FROM nodes WHERE parent_id = ? AND order_value BETWEEN ? AND ? ORDER BY order_value",
        (start.parent_id, start.order_value, end.order_value),
    ).fetchall()
    for (member_id,) in rows:
        if tree.first_child(edit.sql, member_id):
            raise DocmemError(f"node {member_id!r} has children", mend="only leaves can be summarised")
    assert start.parent_id is not None
    summary = edit.add(start.parent_id, edit.place("child", start.parent_id)[1], Draft(context, text))
    reached("documents.summary.added")
    for (member_id,) in rows:
        edit.change(tree.get(edit.sql, member_id), parent_id=summary.id)
    # Only now: until the members have left, one of them may stand at the midpoint. Nobody else can.
    summary = edit.change(summary, order_value=(start.order_value + end.order_value) / 2)
    edit.sql.execute("INSERT INTO summaries VALUES (?, 0)", (summary.id,))
    return summary


def remove_summary(edit: Edit, summary_id: str, expected_hash: str | None) -> list[Node]:
    """Give a summary's children back to its parent, in order, and delete it; gives the children.

    Raises DocmemError for a node that is no summary.
    """
    summary = edit.expect(summary_id, expected_hash)
    if summary.parent_id is None or not summary_ids(edit.sql, [summary]):
        raise DocmemError(f"node {summary_id!r} is no summary", mend="name the summary itself; doc tree shows it")
    members = tree.children(edit.sql, summary_id)
    before, after = tree.siblings_around(edit.sql, summary)
    fits = all(
        (before is None or before.order_value < member.order_value)
        and (after is None or member.order_value < after.order_value)
        for member in members
    )
    if fits:  # they kept the orders that they had before: those are theirs again
        edit.change(summary, order_value=edit.place("child", summary.parent_id)[1])
    previous = summary_id
    for member in members:
        place = member.order_value if fits else edit.place("after", previous)[1]
        edit.change(member, parent_id=summary.parent_id, order_value=place)
        previous = member.id
        reached("documents.summary.given_back")
    edit.remove([summary_id])
    return tree.get_many(edit.sql, [member.id for member in members])


@frozen
class Material:
    """What a summary is to be written from: its members, and the summary itself if there is one already."""

    summary: Node | None
    members: tuple[Node, ...]

    def hashes(self) -> list[str]:
        known = () if self.summary is None else (self.summary,)
        return [node.hash for node in (*known, *self.members)]


def material(sql: sqlite3.Connection, node_id: str) -> Material:
    """A summary's children, or the first leaves in a row among another node's. Raises DocmemError if there are none.

    Notes are no beginning: they speak of what they stand after, or of the node. Neither is front matter.
    """
    node = tree.get(sql, node_id)
    members = tree.children(sql, node_id)
    known = bool(summary_ids(sql, [node]))
    if not known:
        members = _first_leaves(members, tree.interior_ids(sql, node_id))
    if not members:
        raise DocmemError(f"node {node_id!r} has no leaves to summarise right below it", mend=_other_choice(sql, node))
    return Material(node if known else None, tuple(members))


def _first_leaves(children: Sequence[Node], interior: Container[str]) -> list[Node]:
    rest = dropwhile(lambda child: child.id in interior or child.context_type in _NO_BEGINNING, children)
    return list(takewhile(lambda child: child.id not in interior, rest))


def _other_choice(sql: sqlite3.Connection, node: Node) -> str:
    """Which node to name instead: of a document people name the root, and its leaves stand below its headings."""
    below: Node | None = node
    while below is not None:
        children, interior = tree.children(sql, below.id), tree.interior_ids(sql, below.id)
        if _first_leaves(children, interior):
            return f"choose node {below.id!r} below it, or another that has text right below it"
        if below is node and not children and node.parent_id is not None:
            return f"it is a leaf itself: choose node {node.parent_id!r}, which it stands in"
        below = next((child for child in children if child.id in interior), None)
    return "choose a node with text below it"


def write_summary(edit: Edit, found: Material, text: str) -> Node | None:
    """Put the text there, the old one into the history; None if the material has changed since it was read."""
    start, end = found.members[0].id, found.members[-1].id
    anchor = found.summary.id if found.summary else found.members[0].parent_id
    assert anchor is not None
    if tree.find(edit.sql, anchor) is None or material(edit.sql, anchor).hashes() != found.hashes():
        return None
    if found.summary is None:
        return add_summary(edit, start, end, text, Context("summary", "by", "summarize"))
    summary = edit.change(found.summary, text=text)
    edit.sql.execute("INSERT INTO summaries VALUES (?, 0) ON CONFLICT (node_id) DO UPDATE SET stale = 0", (summary.id,))
    return summary
