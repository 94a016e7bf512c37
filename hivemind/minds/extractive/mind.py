"""The extractive mind, which derives calls from a turn by fixed rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hivemind.documents import Citation
from hivemind.minds.extractive.plan import SENTENCE, plan_steps, questions_in
from hivemind.minds.extractive.quote import Quote, quotes_for
from hivemind.minds.mind import MindError, Thought, ToolCall, ToolSchema, Turn

__all__ = ["NOTHING_FOUND", "NO_ANSWER", "ExtractiveMind"]

NOTHING_FOUND = "Nothing relevant was found in knowledge/, the attachments or memory."
NO_ANSWER = "Nothing in the hive answers this. What comes nearest may help"
_MOST_STEPS = 1000  # the limit of the tool `plan_steps`


class ExtractiveMind:
    """Plans by list items and questions, runs `run:` steps, and answers with quotes. Equal turns have equal thoughts."""

    by_rule = True
    """This mind writes no JSON, so its reasoning memory creates patches and folds by rule, too."""

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:  # noqa: ARG002 - its tools are fixed
        if turn.focus.kind == "message":
            return _about_mail(turn)
        match turn.focus.tool:
            case "plan_steps":
                steps = plan_steps(turn.focus.title, turn.focus.text)
                if len(steps) > _MOST_STEPS:
                    reason = f"it has {len(steps):,} questions and list items: divide it into tasks of {_MOST_STEPS:,} at most"
                    return _do("That is too much for one task.", ToolCall("fail_task", {"reason": reason}))
                planned_steps = [{"title": step.title or step.text, "ask": step.text} for step in steps]
                return _do("One step per question or list item.", ToolCall("plan_steps", {"steps": planned_steps}))
            case "finish_step" | "verify_step":
                return _about_step(turn)
            case "finish_task":
                return _do("Every step is done.", ToolCall("finish_task", {}))
        return Thought("There is nothing to do.")

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """Return the first sentences of `text`, up to 60 words. Raises MindError if a schema is given."""
        if schema is not None:
            raise MindError("the extractive mind writes no JSON")
        words: list[str] = []
        for sentence in SENTENCE.split(" ".join(text.split())):
            if words and len(words) + len(sentence.split()) > 60:
                break
            words += sentence.split()[:60]
        return " ".join(words)


def _found_for(turn: Turn, question: str) -> list[Mapping[str, Any]]:
    """Return the entries recalled for a question from files and memory, best first."""
    entries = [entry for entry in turn.found if question in entry["metadata"].get("answers", {})]
    return sorted(entries, key=lambda entry: (-entry["metadata"].get("relevance", 0), str(entry["id"])))


def _do(text: str, *actions: ToolCall) -> Thought:
    return Thought(text, actions, chained=True)


def _about_step(turn: Turn) -> Thought:
    step = turn.focus.todo
    identity = str(step.get("id"))
    argument = step.get("argument")
    finish = ToolCall("finish_step", {"step": identity})
    match step.get("kind"):
        case "run":
            return _run(turn, identity, finish)
        case "write":
            return _do("Write the file.", ToolCall("write_file", {**dict(argument or {}), "step": identity}), finish)
        case "mail":
            return _do("Send the mail.", ToolCall("send_mail", {**dict(argument or {}), "step": identity}), finish)
        case "wait":
            return _do("Wait.", ToolCall("wait", {"step": identity, "until": argument}), finish)
        case _:
            return _answer(turn, identity, str(argument or step.get("title")), finish)


def _run(turn: Turn, step: str, finish: ToolCall) -> Thought:
    last_run = next(
        (tool_result.value for tool_result in reversed(turn.before) if tool_result.call.tool == "run_command"), None
    )
    if last_run is not None and last_run.get("step") == step and last_run.get("exit_status") not in (0, None):
        ending = f"ended with status {last_run['exit_status']}"
        if last_run.get("stopped"):
            ending = f"was stopped after {last_run.get('seconds', 0.0):.1f} s: {last_run['stopped']}"
        reason = f"the command `{last_run.get('command')}` {ending}"
        printed = str(last_run.get("output_tail") or "").strip()
        explanation = (
            f"{reason}\n\nThe last that it printed:\n\n{printed}" if printed else f"{reason}; it printed nothing"
        )
        return _do(reason, ToolCall("fail_task", {"reason": explanation}))
    return _do("Run the command of the task.", ToolCall("run_command", {"step": step}), finish)


def _answer(turn: Turn, step: str, question: str, finish: ToolCall) -> Thought:
    quotes = quotes_for(question, _found_for(turn, question))
    cards = {quote: _evidence(step, quote.citation) for quote in quotes if quote.citation and not quote.is_weak}
    attempts = [(result.call.arguments, result.problem) for result in turn.before if result.call.tool == "add_card"]
    refused_quotes = {
        quote: problem for quote, card in cards.items() for call, problem in attempts if problem and call == card
    }
    if refused_quotes and sum(call in cards.values() for call, _ in attempts) < len(cards):
        return Thought(
            "A quote is not confirmed: try each.", tuple(ToolCall("add_card", card) for card in cards.values())
        )
    reasons = [
        f"Not confirmed, and so not quoted: {problem.removeprefix('failed: ')}" for problem in refused_quotes.values()
    ]
    quotes = [quote for quote in quotes if quote not in refused_quotes]
    if reasons and not quotes and len(plan_steps(turn.focus.title, turn.focus.text)) == 1:
        return _do("No quote is left.", ToolCall("fail_task", {"reason": "\n\n".join(reasons)}))
    note = {"step": step, "kind": "note", "title": question, "text": "\n\n".join([_told(quotes), *reasons])}
    adds = [ToolCall("add_card", card) for card in [*(cards[quote] for quote in quotes if quote in cards), note]]
    return _do(_told(quotes).split("\n", 1)[0], *adds, finish)


def _told(quotes: Sequence[Quote], *, whole: bool = False) -> str:
    """Return the answer's confidence and its reason, then the quotes that are not evidence: memories and weak quotes.

    With `whole`, return all quotes.
    """
    if not quotes:
        return NOTHING_FOUND
    best = quotes[0]
    lines = [f"Confidence: {best.confidence.level}. The first quote {best.confidence.reason}."]
    if best.is_weak:
        lines = [f"{NO_ANSWER} ({best.confidence.reason}):"]
    lines += [_shown(quote) for quote in quotes if whole or quote.is_weak or quote.remembered]
    return "\n\n".join(lines)


def _shown(quote: Quote) -> str:
    quoted_lines = "\n".join(f"> {line}".rstrip() for line in quote.text.splitlines())
    if quote.citation is None:
        return f"{quoted_lines}\n\n— remembered as `{quote.path}` ({quote.remembered}); no file is cited."
    return f"{quoted_lines}\n\n{quote.citation.source}"


def _evidence(step: str, citation: Citation) -> dict[str, Any]:
    fields = asdict(citation)
    return {"step": step, "kind": "evidence", "title": citation.place, "text": fields.pop("text"), "citation": fields}


def _about_mail(turn: Turn) -> Thought:
    focus = turn.focus
    assert focus.message is not None
    if focus.asks_review:
        return _do("Check each quote where it is said to stand.", ToolCall("check_citations", {"message": focus.id}))
    return _do("Answer with quotes.", ToolCall("reply_mail", {"id": focus.id, "body": _reply(turn)}))


def _reply(turn: Turn) -> str:
    parts: list[str] = []
    for question in questions_in(turn.focus.title, turn.focus.text):
        parts.append(f"**{question.text}**\n")
        parts.append(f"{_told(quotes_for(question.text, _found_for(turn, question.text)), whole=True)}\n")
    return "\n".join(parts) or f"{NOTHING_FOUND}\n"
