"""Tools for what is found and concluded: cards of the task's reasoning graph."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Literal

from pydantic import Field

from hivemind.taskrun.review import Citation as Cited
from hivemind.tools.path_access import readable
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool


class CitationArguments(Arguments):
    path: str
    start_line: int = Field(ge=1)
    end_line: int = Field(ge=1)
    digest: str


class AddCard(Arguments):
    kind: Literal["evidence", "frame", "hypothesis", "question", "test", "decision", "note", "update"]
    text: str
    title: str = ""
    step: str | None = None
    citation: CitationArguments | None = Field(None, description="where an evidence's text stands, word for word")
    tags: list[str] = []


class LinkCards(Arguments):
    src: int
    dst: int
    relation: Literal["supports", "blocks", "supersedes"]


class Publish(Arguments):
    card: int


class MakeBranch(Arguments):
    name: str = Field(min_length=1, max_length=64)
    base: str = "main"


class MergeBranch(Arguments):
    source: str = Field(description="the branch whose changes are taken")
    into: str = "main"
    resolve: dict[str, Literal["use_from", "use_into"]] = Field({}, description="for each conflict by its name")
    dry_run: bool = False


@tool()
def add_card(session: Session, arguments: AddCard) -> dict[str, Any]:
    """Put what was found or concluded into the task's graph, under a step. Evidence is a quote with its citation."""
    cited = None
    if arguments.citation is not None:
        told = arguments.citation
        path = session.hive.layout.relative(readable(session, told.path).path) if session.trees else told.path
        cited = Cited(path, told.start_line, told.end_line, told.digest, arguments.text)
        verdict = session.hive.knowledge.verify(cited)
        if verdict.lines and told.start_line <= verdict.lines[0] and verdict.lines[1] <= told.end_line:
            cited = replace(cited, start_line=verdict.lines[0], end_line=verdict.lines[1])  # of a part that was read
        elif not verdict.stands:
            raise ToolProblem(f"the quote does not stand there: {verdict.reason}", location=cited.place)
    step = session.step(arguments.step)
    node = session.work.trail.card(
        step, arguments.kind, arguments.text, title=arguments.title, citation=cited, tags=arguments.tags
    )
    return {"node": node, "kind": arguments.kind, "step": step.id}


@tool()
def link_cards(session: Session, arguments: LinkCards) -> dict[str, Any]:
    """Say that one card supports, blocks or supersedes another."""
    session.work.trail.link(arguments.src, arguments.dst, arguments.relation)
    return {"src": arguments.src, "dst": arguments.dst, "relation": arguments.relation}


@tool()
def publish(session: Session, arguments: Publish) -> dict[str, Any]:
    """Promote one of your draft cards into the shared lane, where other agents see it. The end of the task publishes all."""
    return {"card": arguments.card, "published": session.work.trail.publish(arguments.card)}


@tool()
def branch(session: Session, arguments: MakeBranch) -> dict[str, Any]:
    """Make a branch of the task's graph for an alternative: it sees its base as it is now."""
    made = session.work.trail.branch(arguments.name, arguments.base)
    return {"branch": made.name, "base": made.base, "base_seq": made.base_seq}


@tool()
def merge(session: Session, arguments: MergeBranch) -> dict[str, Any]:
    """Bring what changed in one branch into another. What both changed is a conflict: nothing is written while one is left."""
    report = session.work.trail.merge(arguments.source, arguments.into, arguments.resolve, dry_run=arguments.dry_run)
    return asdict(report)


CARD_TOOLS = (add_card, link_cards, publish, branch, merge)
