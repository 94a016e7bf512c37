"""The extractive mind: from a turn to calls, by rule (spec 1, *The default mind*)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hivemind.documents import Citation
from hivemind.minds.extractive.plan import SENTENCE, plan_steps, questions_in
from hivemind.minds.extractive.quote import Quote, quotes_for
from hivemind.minds.mind import Action, MindError, Thought, ToolSchema, Turn

__all__ = ["NOTHING_FOUND", "NO_ANSWER", "ExtractiveMind"]

NOTHING_FOUND = "Nothing relevant was found in knowledge/, the attachments or memory."
NO_ANSWER = "Nothing in the hive answers this. What comes nearest may help"
_MOST_STEPS = 1000  # that `plan_steps` takes


class ExtractiveMind:
    """Plans by list items and questions, obeys `run:`, answers by quoting. The same turn leads to the same thought."""

    by_rule = True
    """It writes no JSON: a memory that is its own makes patches and folds by rule, too."""

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:  # noqa: ARG002 - it knows its tools
        if turn.focus.kind == "message":
            return _about_mail(turn)
        match turn.focus.tool:
            case "plan_steps":
                steps = plan_steps(turn.focus.title, turn.focus.text)
                if len(steps) > _MOST_STEPS:
                    reason = f"it has {len(steps):,} questions and list items: divide it into tasks of {_MOST_STEPS:,} at most"
                    return _do("That is too much for one task.", Action("fail_task", {"reason": reason}))
                wishes = [{"title": step.title or step.text, "ask": step.text} for step in steps]
                return _do("One step per question or list item.", Action("plan_steps", {"steps": wishes}))
            case "finish_step" | "verify_step":
                return _about_step(turn)
            case "finish_task":
                return _do("Every step is done.", Action("finish_task", {}))
        return Thought("There is nothing to do.")

    def complete(self, text: str, schema: Mapping[str, Any] | None = None) -> str:
        """The first sentences of `text`, up to 60 words. Raises MindError if JSON of some schema is asked for."""
        if schema is not None:
            raise MindError("the extractive mind writes no JSON")
        words: list[str] = []
        for sentence in SENTENCE.split(" ".join(text.split())):
            if words and len(words) + len(sentence.split()) > 60:
                break
            words += sentence.split()[:60]
        return " ".join(words)


def _found_for(turn: Turn, question: str) -> list[Mapping[str, Any]]:
    """What was recalled for one question, of files and of memory, best first."""
    mine = [entry for entry in turn.found if question in entry["metadata"].get("answers", {})]
    return sorted(mine, key=lambda entry: (-entry["metadata"].get("relevance", 0), str(entry["id"])))


def _do(text: str, *actions: Action) -> Thought:
    return Thought(text, actions, chained=True)


def _about_step(turn: Turn) -> Thought:
    step = turn.focus.todo
    identity = str(step.get("id"))
    argument = step.get("argument")
    finish = Action("finish_step", {"step": identity})
    match step.get("kind"):
        case "run":
            return _run(turn, identity, finish)
        case "write":
            return _do("Write the file.", Action("write_file", {**dict(argument or {}), "step": identity}), finish)
        case "mail":
            return _do("Send the mail.", Action("send_mail", {**dict(argument or {}), "step": identity}), finish)
        case "wait":
            return _do("Wait.", Action("wait", {"step": identity, "until": argument}), finish)
        case _:
            return _answer(turn, identity, str(argument or step.get("title")), finish)


def _run(turn: Turn, step: str, finish: Action) -> Thought:
    last = next((one.value for one in reversed(turn.before) if one.call.tool == "run_command"), None)
    if last is not None and last.get("step") == step and last.get("exit_status") not in (0, None):
        how = f"ended with status {last['exit_status']}"
        if last.get("stopped"):
            how = f"was stopped after {last.get('seconds', 0.0):.1f} s: {last['stopped']}"
        reason = f"the command `{last.get('command')}` {how}"
        printed = str(last.get("output_tail") or "").strip()
        told = f"{reason}\n\nThe last that it printed:\n\n{printed}" if printed else f"{reason}; it printed nothing"
        return _do(reason, Action("fail_task", {"reason": told}))
    return _do("Run the command that the task gives.", Action("run_command", {"step": step}), finish)


def _answer(turn: Turn, step: str, question: str, finish: Action) -> Thought:
    quotes = quotes_for(question, _found_for(turn, question))
    cards = {quote: _evidence(step, quote.citation) for quote in quotes if quote.citation and not quote.is_weak}
    tried = [(result.call.arguments, result.problem) for result in turn.before if result.call.tool == "add_card"]
    refused = {quote: problem for quote, card in cards.items() for call, problem in tried if problem and call == card}
    if refused and sum(call in cards.values() for call, _ in tried) < len(cards):
        return Thought(
            "A quote is not confirmed: try each.", tuple(Action("add_card", card) for card in cards.values())
        )
    reasons = [f"Not confirmed, and so not quoted: {problem.removeprefix('failed: ')}" for problem in refused.values()]
    quotes = [quote for quote in quotes if quote not in refused]
    if reasons and not quotes and len(plan_steps(turn.focus.title, turn.focus.text)) == 1:
        return _do("No quote is left.", Action("fail_task", {"reason": "\n\n".join(reasons)}))
    note = {"step": step, "kind": "note", "title": question, "text": "\n\n".join([_told(quotes), *reasons])}
    adds = [Action("add_card", card) for card in [*(cards[quote] for quote in quotes if quote in cards), note]]
    return _do(_told(quotes).split("\n", 1)[0], *adds, finish)


def _told(quotes: Sequence[Quote], *, whole: bool = False) -> str:
    """How far the answer can be trusted and why, then what no evidence is made of: memories, and quotes that are weak; with
    `whole` the others as well."""
    if not quotes:
        return NOTHING_FOUND
    best = quotes[0]
    lines = [f"Confidence: {best.confidence.level}. The first quote {best.confidence.reason}."]
    if best.is_weak:
        lines = [f"{NO_ANSWER} ({best.confidence.reason}):"]
    lines += [_shown(quote) for quote in quotes if whole or quote.is_weak or quote.remembered]
    return "\n\n".join(lines)


def _shown(quote: Quote) -> str:
    cited = "\n".join(f"> {line}".rstrip() for line in quote.text.splitlines())
    if quote.citation is None:
        return f"{cited}\n\n— remembered as `{quote.path}` ({quote.remembered}); no file is cited."
    return f"{cited}\n\n{quote.citation.source}"


def _evidence(step: str, citation: Citation) -> dict[str, Any]:
    fields = asdict(citation)
    return {"step": step, "kind": "evidence", "title": citation.place, "text": fields.pop("text"), "citation": fields}


def _about_mail(turn: Turn) -> Thought:
    focus = turn.focus
    assert focus.message is not None
    if focus.asks_review:
        return _do("Check each quote where it is said to stand.", Action("check_citations", {"message": focus.id}))
    return _do("Answer with quotes.", Action("reply_mail", {"id": focus.id, "body": _reply(turn)}))


def _reply(turn: Turn) -> str:
    parts: list[str] = []
    for question in questions_in(turn.focus.title, turn.focus.text):
        parts.append(f"**{question.text}**\n")
        parts.append(f"{_told(quotes_for(question.text, _found_for(turn, question.text)), whole=True)}\n")
    return "\n".join(parts) or f"{NOTHING_FOUND}\n"
