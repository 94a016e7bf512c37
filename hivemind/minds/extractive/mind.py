"""The extractive mind, which derives calls from a turn by fixed rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hivemind.documents import Citation
from hivemind.minds.extractive.plan import SENTENCE, plan_steps, questions_in
from hivemind.minds.extractive.quote import Quote, quotes_for
from hivemind.minds.mind import UNANSWERED, MindError, Thought, ToolCall, ToolSchema, Turn

NO_ANSWER = "No answer stands out."
_NOTHING_NEAR = "Nothing in knowledge/, the attachments or memory is near the question."
_MAX_STEPS = 1000  # the limit of the tool `plan_steps`


class ExtractiveMind:
    """A mind that works by rule: it makes a step of each list item and question, runs `run:` steps, and answers with quotes.
    Equal turns have equal thoughts."""

    by_rule = True
    """This mind writes no JSON, so its reasoning memory creates patches and folds by rule, too."""

    def think(self, turn: Turn, tools: Sequence[ToolSchema]) -> Thought:  # noqa: ARG002 - its tools are fixed
        if turn.focus.kind == "message":
            return _think_about_mail(turn)
        match turn.focus.tool:
            case "plan_steps":
                steps = plan_steps(turn.focus.title, turn.focus.text)
                if len(steps) > _MAX_STEPS:
                    reason = f"it has {len(steps):,} questions and list items: divide it into tasks of {_MAX_STEPS:,} at most"
                    return _chained_thought("That is too much for one task.", ToolCall("fail_task", {"reason": reason}))
                planned_steps = [{"title": step.title or step.text, "ask": step.text} for step in steps]
                return _chained_thought(
                    "One step per question or list item.", ToolCall("plan_steps", {"steps": planned_steps})
                )
            case "run_command" | "finish_step":
                return _think_about_step(turn)
            case "finish_task":
                return _chained_thought("Every step is done.", ToolCall("finish_task", {}))
        return Thought("No work is left.")

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


def _entries_for(turn: Turn, question: str) -> list[Mapping[str, Any]]:
    """Return the entries recalled for a question from files and memory, best first."""
    entries = [entry for entry in turn.recalled_entries if question in entry["metadata"].get("answers", {})]
    return sorted(entries, key=lambda entry: (-entry["metadata"].get("relevance", 0), str(entry["id"])))


def _chained_thought(text: str, *actions: ToolCall) -> Thought:
    return Thought(text, actions, chained=True)


def _think_about_step(turn: Turn) -> Thought:
    step = turn.focus.todo
    identity = str(step.get("id"))
    argument = step.get("argument")
    finish = ToolCall("finish_step", {"step": identity})
    match step.get("kind"):
        case "run":
            return _think_about_command(turn, identity, finish)
        case "write":
            return _chained_thought(
                "Write the file.", ToolCall("write_file", {**dict(argument or {}), "step": identity}), finish
            )
        case "mail":
            return _chained_thought(
                "Send the mail.", ToolCall("send_mail", {**dict(argument or {}), "step": identity}), finish
            )
        case "wait":
            return _chained_thought("Wait.", ToolCall("wait", {"step": identity, "until": argument}), finish)
        case _:
            return _think_about_question(turn, identity, str(argument or step.get("title")), finish)


def _think_about_command(turn: Turn, step: str, finish: ToolCall) -> Thought:
    last_run = next(
        (
            tool_result.value
            for tool_result in reversed(turn.previous_results)
            if tool_result.call.tool == "run_command"
        ),
        None,
    )
    if last_run is not None and last_run.get("step") == step and last_run.get("exit_status") not in (0, None):
        ending = f"ended with status {last_run['exit_status']}"
        if last_run.get("stopped"):
            ending = f"was stopped after {last_run.get('seconds', 0.0):.1f} s: {last_run['stopped']}"
        reason = f"the command `{last_run.get('command')}` {ending}"
        output = str(last_run.get("output_tail") or "").strip()
        explanation = f"{reason}\n\nThe end of its output:\n\n{output}" if output else f"{reason}; it had no output"
        return _chained_thought(reason, ToolCall("fail_task", {"reason": explanation}))
    return _chained_thought("Run the command of the task.", ToolCall("run_command", {"step": step}), finish)


def _think_about_question(turn: Turn, step: str, question: str, finish: ToolCall) -> Thought:
    quotes = quotes_for(question, _entries_for(turn, question))
    cards = {
        quote: _evidence_card(step, quote.citation) for quote in quotes if quote.citation and not quotes[0].is_weak
    }
    attempts = [
        (result.call.arguments, result.problem) for result in turn.previous_results if result.call.tool == "add_card"
    ]
    refused_quotes = {
        quote: problem for quote, card in cards.items() for call, problem in attempts if problem and call == card
    }
    if refused_quotes and sum(call in cards.values() for call, _ in attempts) < len(cards):
        return Thought(
            "A quote is not confirmed: try each quote.", tuple(ToolCall("add_card", card) for card in cards.values())
        )
    reasons = [
        f"Not confirmed, and so not quoted: {problem.removeprefix('failed: ')}" for problem in refused_quotes.values()
    ]
    quotes = [quote for quote in quotes if quote not in refused_quotes]
    if reasons and not quotes and len(plan_steps(turn.focus.title, turn.focus.text)) == 1:
        return _chained_thought("No quote is left.", ToolCall("fail_task", {"reason": "\n\n".join(reasons)}))
    answer = _answer_text(quotes, turn.search_gap)
    note: dict[str, Any] = {"step": step, "kind": "note", "title": question, "text": "\n\n".join([answer, *reasons])}
    if answer.startswith(NO_ANSWER):
        note["tags"] = [UNANSWERED]
    adds = [ToolCall("add_card", card) for card in [*(cards[quote] for quote in quotes if quote in cards), note]]
    return _chained_thought(answer.split("\n", 1)[0], *adds, finish)


def _answer_text(quotes: Sequence[Quote], search_gap: str, *, includes_evidence: bool = False) -> str:
    """Return the text of an answer: its confidence with the reason, then the quotes that cannot be evidence: those of memories
    and, if no quote is better, weak ones.

    With `includes_evidence`, include all quotes. `search_gap` says what was left out of the search.
    """
    verdict = f"{NO_ANSWER} {search_gap}".rstrip()
    if not quotes:
        return f"{verdict} {_NOTHING_NEAR}"
    best = quotes[0]
    if best.is_weak:
        lines = [f"{verdict} The nearest places may help; the first {best.confidence.reason}:"]
    else:
        weak_places = [quote.citation.place for quote in quotes[1:] if quote.is_weak and quote.citation]
        lines = [
            f"Confidence: {best.confidence.level}. The first quote {best.confidence.reason}."
            + (f" Weak: {', '.join(weak_places)}." if weak_places else "")
            + (f" {search_gap}" if search_gap else "")
        ]
    lines += [_quote_text(quote) for quote in quotes if includes_evidence or best.is_weak or quote.remembered]
    return "\n\n".join(lines)


def _quote_text(quote: Quote) -> str:
    if quote.citation is not None:
        return quote.citation.as_markdown
    quoted_lines = "\n".join(f"> {line}".rstrip() for line in quote.text.splitlines())
    return f"{quoted_lines}\n\n— remembered as `{quote.path}` ({quote.remembered}); no file is cited."


def _evidence_card(step: str, citation: Citation) -> dict[str, Any]:
    fields = asdict(citation)
    return {"step": step, "kind": "evidence", "title": citation.place, "text": fields.pop("text"), "citation": fields}


def _think_about_mail(turn: Turn) -> Thought:
    focus = turn.focus
    assert focus.message is not None
    if focus.asks_review:
        return _chained_thought(
            "Check each quote at its cited place.", ToolCall("check_citations", {"message": focus.id})
        )
    return _chained_thought("Answer with quotes.", ToolCall("reply_mail", {"id": focus.id, "body": _reply(turn)}))


def _reply(turn: Turn) -> str:
    parts: list[str] = []
    for question in questions_in(turn.focus.title, turn.focus.text):
        quotes = quotes_for(question.text, _entries_for(turn, question.text))
        parts += [f"**{question.text}**\n", f"{_answer_text(quotes, turn.search_gap, includes_evidence=True)}\n"]
    return "\n".join(parts) or f"{_answer_text((), turn.search_gap)}\n"
