"""Tools for a task's reasoning graph: add, link and publish cards, create and merge branches."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Literal

from pydantic import Field

from hivemind.documents import Citation
from hivemind.tools.path_access import readable
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext


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
    citation: CitationArguments | None = Field(
        None, description="for evidence: the lines that contain its text, word for word"
    )
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
    source: str = Field(description="merge the changes of this branch")
    into: str = "main"
    resolve: dict[str, Literal["use_from", "use_into"]] = Field(
        {}, description="how to resolve each conflict, by its name"
    )
    dry_run: bool = False


@tool()
def add_card(context: ToolContext, arguments: AddCard) -> dict[str, Any]:
    """Add a finding or a conclusion to the task's graph, under a step. Evidence is a quote with its citation."""
    citation = None
    if arguments.citation is not None:
        cited_lines = arguments.citation
        path = (
            context.hive.layout.relative(readable(context, cited_lines.path).path)
            if context.worktrees
            else cited_lines.path
        )
        citation = Citation(path, cited_lines.start_line, cited_lines.end_line, cited_lines.digest, arguments.text)
        verdict = context.hive.knowledge.verify(citation)
        if verdict.lines and cited_lines.start_line <= verdict.lines[0] and verdict.lines[1] <= cited_lines.end_line:
            # The quote is in a part of the lines that were read.
            citation = replace(citation, start_line=verdict.lines[0], end_line=verdict.lines[1])
        elif not verdict.is_confirmed:
            raise ToolProblem(f"the quote is not at these lines: {verdict.reason}", location=citation.place)
    step = context.step(arguments.step)
    node = context.work.trail.add_card(
        step, arguments.kind, arguments.text, title=arguments.title, citation=citation, tags=arguments.tags
    )
    return {"node": node, "kind": arguments.kind, "step": step.id}


@tool()
def link_cards(context: ToolContext, arguments: LinkCards) -> dict[str, Any]:
    """Say that one card supports, blocks or supersedes another."""
    context.work.trail.link(arguments.src, arguments.dst, arguments.relation)
    return {"src": arguments.src, "dst": arguments.dst, "relation": arguments.relation}


@tool()
def publish(context: ToolContext, arguments: Publish) -> dict[str, Any]:
    """Publish one of your draft cards to the shared lane, where other agents see it. The end of the task publishes all cards."""
    return {"card": arguments.card, "published": context.work.trail.publish(arguments.card)}


@tool()
def branch(context: ToolContext, arguments: MakeBranch) -> dict[str, Any]:
    """Create a branch of the task's graph for an alternative. The branch sees its base as of now."""
    new_branch = context.work.trail.branch(arguments.name, arguments.base)
    return {"branch": new_branch.name, "base": new_branch.base, "base_seq": new_branch.base_seq}


@tool()
def merge(context: ToolContext, arguments: MergeBranch) -> dict[str, Any]:
    """Merge the changes of one branch into another. A change in both branches is a conflict: the merge writes only if all
    conflicts are resolved."""
    report = context.work.trail.merge(arguments.source, arguments.into, arguments.resolve, dry_run=arguments.dry_run)
    return asdict(report)


CARD_TOOLS = (add_card, link_cards, publish, branch, merge)
