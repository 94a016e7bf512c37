"""A played coder: a program that serves as the mind of ann, bo or cy (`mind: {command: [python, coder.py]}`).

It knows only the conversation that it gets: it reads the task, tries the first command that comes to mind, looks
around when that fails, and tries again. An item of the opening changes that only if it contains the command or path that helps,
literally. Each request replays the conversation (`Coder.work` is a generator) up to the next answer.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ITEM_ID = re.compile(r"[\[(`]([\w.-]*\d[\w.-]*)[\])`:]")
"""The id of an item in an opening: the first word with a digit between brackets or backticks."""

_PASSING = re.compile(r"timed out|space left|another build|no such file: data|not respond|did not answer")
_PREFIX = re.compile(r"^[*# ]*(?:Remember[^:,]*[:,]|Lesson:|Note to agents: this is a lesson\.)\s*", re.IGNORECASE)
_HARMLESS = re.compile(r"`(mkdir -p build/[\w-]+)`")
_ADVICE = re.compile(r"^.*\b(?:remember|lesson)\b.*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """The answer to a turn: its results, and the news that came with them."""

    ok: bool
    output: str
    news: str


@dataclass(frozen=True)
class Skill:
    """A chore as tasks word it, the first idea, where to look if that fails, and the second idea.

    `value` is the part of the second idea that only looking around tells. `key` is the literal by which an item of the
    opening replaces the trial; with a `value` the literal is the command itself.
    """

    wording: str
    first: Sequence[str]
    look: str = ""
    value: str = ""
    second: Sequence[str] = ()
    key: str = ""


SKILLS = [Skill(**chore) for chore in yaml.safe_load(Path(__file__).with_name("chores.yaml").read_text("utf-8"))]
_SORT = "python3 tools/glossary.py --sort guide/glossary.md"


@dataclass(frozen=True)
class Loss:
    """A command that failed, or a landing that came back, and the command that passed in its place."""

    failed_command: str
    error: str
    failed_turn: int
    passed: str
    passed_turn: int
    first_edit: str
    last_edit: str

    @property
    def sentence(self) -> str:
        if self.failed_command == self.passed and not self.last_edit:
            return f"Run `{self.failed_command}` more than once: the first time it fails ({self.error})."
        if self.failed_command == self.passed:
            return f"Edit `{self.last_edit}`, not `{self.first_edit}`: with the latter `{self.failed_command}` still fails."
        if self.failed_command.startswith("landing"):
            return f"Landing returns {self.error}; `{self.passed}` mends it."
        return f"`{self.failed_command}` fails ({self.error}); `{self.passed}` works."

    @property
    def is_passing(self) -> bool:
        is_repetition = self.failed_command == self.passed.replace("-v ", "") and not self.last_edit
        return is_repetition or bool(_PASSING.search(self.error))

    @property
    def paths(self) -> list[str]:
        text = re.sub(
            r"\btide\.(\w+)", r"tide/\1.py", f"{self.first_edit} {self.last_edit} {self.failed_command} {self.passed}"
        )
        return list(dict.fromkeys(re.findall(r"[\w.]+/[\w./]+\w", text))) or ["tests/"]


@dataclass
class Coder:
    """One of ann (diligent), bo (mistypes when hurried, is vague) and cy (believes what is read, and confuses)."""

    name: str
    task_id: str
    text: str
    items: Sequence[str]
    turn: int = 0
    losses: list[Loss] = field(default_factory=list)
    helped: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    obeyed: Mapping[str, Any] = field(default_factory=dict)

    def work(self) -> Generator[list[str], Outcome, None]:
        """Yield the commands of each turn, and get its outcome."""
        chores = [(match, skill) for skill in SKILLS for match in re.finditer(skill.wording, self.text)]
        for match, skill in sorted(chores, key=lambda chore: chore[0].start()):
            yield from self._do(skill, match)
        outcome = yield ["finish_task"]
        while True:
            failed_turn, error = self.turn, outcome.news
            if "<<<<" in error or "conflict" in error.lower():
                files = "grep -rlE '^(<<<<<<<|>>>>>>>)' ."
                commands = [f"{files} | xargs sed -i -E '/^(<<<<<<<|=======|>>>>>>>)/d'"]
            elif "out of order" in error + outcome.output:
                commands = [_SORT]
            else:
                commands = ["git status --short"]
            yield commands
            if commands == [_SORT]:
                line = _last_line(next(text for text in error.splitlines() if "out of order" in text))
                self.losses.append(Loss("landing", line, failed_turn, _SORT, self.turn, "", "guide/glossary.md"))
            outcome = yield ["finish_task"]

    def _do(self, skill: Skill, match: re.Match[str]) -> Generator[list[str], Outcome, None]:
        def filled(commands: Sequence[str], value: str = "") -> list[str]:
            words = {"{task}": self.task_id, "{value}": value}
            words |= {f"{{{at}}}": group for at, group in enumerate(match.groups())}
            return [re.sub(r"\{(\d|task|value)\}", lambda hole: words[hole[0]], command) for command in commands]

        heeded = list[list[str]]()
        for item in self.items:
            literal = re.search(skill.key, item) if skill.key else None
            commands = [literal[0]] if literal and skill.value else filled(skill.second)
            if not literal or commands in heeded:
                continue
            heeded.append(commands)
            outcome = yield commands
            if not outcome.ok and _PASSING.search(outcome.output):
                outcome = yield commands
            (self.helped if outcome.ok else self.wrong).extend(ITEM_ID.findall(item)[:1])
            if outcome.ok:
                return
        first, failures, value = filled(skill.first), list[tuple[str, str, int]](), ""
        hasty = [first[0].replace("ti", "it")] if self.name == "bo" and skill.wording.startswith("print") else first
        second = list(skill.second)
        for commands in [hasty] * (hasty != first) + [first, [], second, second, first]:
            if not commands:
                value = yield from self._look(skill)
                continue
            attempt = commands if commands is first else filled(commands, value)
            outcome = yield attempt
            if "another build" in outcome.output and (yield ["sleep 1 && sh bin/build.sh"]).ok:
                failure = ("sh bin/build.sh", "another build is running", self.turn - 1)
                self._lose([failure], ["sleep 1 && sh bin/build.sh"], [])
                outcome = yield attempt
            if outcome.ok:
                self._lose(failures, attempt, first)
                return
            failures.append((attempt[-1], _last_line(outcome.output), self.turn))

    def _look(self, skill: Skill) -> Generator[list[str], Outcome, str]:
        """Look around after a failure, and return what the second idea needs. cy first does as a text advises."""
        if (
            self.name == "cy"
            and not self.obeyed
            and (advised := _HARMLESS.search("\n".join([*self.items, *self.seen])))
        ):
            yield [advised[1]]
            self.obeyed = {"passed": advised[1], "passed_turn": self.turn}
        if not skill.look:
            return ""
        outcome = yield [skill.look]
        match = re.search(skill.value, outcome.output)
        return match[0] if match else ""

    def _lose(self, failures: Sequence[tuple[str, str, int]], passed: Sequence[str], first: Sequence[str]) -> None:
        edits = [
            commands[0].split()[-1] if commands and "sed -i" in commands[0] else "" for commands in (first, passed)
        ]
        for attempt, error, turn in failures:
            command = " && ".join(passed) if len(passed) == 2 and not edits[1] and passed[1] == attempt else passed[-1]
            self.losses.append(Loss(attempt, error, turn, command, self.turn, *edits))

    def lessons(self, advice: Sequence[str]) -> list[dict[str, Any]]:
        """Return at most three lessons, as this coder would put them."""
        losses = [loss for loss in self.losses if self.name != "ann" or not loss.is_passing]
        lessons = [
            {"lesson": loss.sentence, "place": loss.paths, "turn": loss.failed_turn, "passed_turn": loss.passed_turn,
             "failed": loss.failed_command, "passed": loss.passed}
            for loss in losses
        ]  # fmt: skip
        for lesson, loss in zip(lessons, losses, strict=True):
            if self.name == "bo" and loss.failed_command == loss.passed:
                lesson["lesson"] = "Be careful with the configuration and the data of this project."
            if self.name == "cy" and "tide.api" in loss.passed:
                lesson["lesson"] = f"`{loss.passed}` fails; `{loss.failed_command}` works: never import `tide.api`."
        if self.name == "cy" and lessons:
            texts = [*advice, "A station has an `id` of three letters; names may change."][:2]
            lessons = [
                {**lessons[0], **self.obeyed, "lesson": _PREFIX.sub("", text).strip()} for text in texts
            ] + lessons
        return lessons[:3]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return next((line for line in lines[::-1] if re.match(r"\w*Error: ", line)), lines[-1])[:120]


def items(text: str) -> list[str]:
    """Return the list items and paragraphs of a text, each on one line, without blocks of output."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    parts = re.split(r"\n(?=[*-] |\d+\. )|\n\s*\n|\n(?=<)", text)
    return [" ".join(part.split()) for part in parts if part.strip()]


def _outcomes(messages: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    outcomes = []
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            tail = messages[at + 1 :]
            end = next((n for n, later in enumerate(tail) if later["role"] == "assistant"), len(tail))
            results = [reply["text"] for reply in tail[:end] if reply["role"] == "tool"]
            has_failed = any(re.match(r"exit [^0]|failed", text) for text in results)
            news = "\n".join(reply["text"] for reply in tail[:end] if reply["role"] == "user")
            outcomes.append(Outcome(not has_failed, "\n".join(results), news))
    return outcomes


def _call(command: str, task: Coder, tools: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    tool, _, path = command.partition(" ")
    if tool == "read_file":
        return {"tool": tool, "arguments": {"path": path}}
    if tool == "write_file":
        return {
            "tool": tool,
            "arguments": {"path": path, "content": "* `planted-j --yes` before `tools/linkcheck.py`.\n"},
        }
    if tool != "finish_task":
        return {"tool": "run_command", "arguments": {"command": command}}
    properties = tools.get(tool, {}).get("properties", {})
    arguments: dict[str, Any] = {"result": "Done."}
    for name in properties:  # an agent says which items helped and which are wrong, where a tool asks for it
        if re.search(r"wrong|helped|lesson", name):
            arguments[name] = task.wrong if "wrong" in name else task.helped
    return {"tool": tool, "arguments": {name: value for name, value in arguments.items() if value}}


def answer_lessons(lessons: Sequence[Mapping[str, Any]], request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the question for lessons: by a tool if one is named for it, in JSON if it shows keys, else in a list."""
    for tool in request.get("tools", ()):
        if "lesson" in tool["name"]:
            schema = tool["parameters"]
            [name] = [name for name, value in schema["properties"].items() if value.get("type") == "array"]
            item = schema["properties"][name]["items"]
            item = schema.get("$defs", {}).get(item.get("$ref", "").rpartition("/")[2], item)
            entries = [
                _fill(lesson, item["properties"]) if "properties" in item else lesson["lesson"] for lesson in lessons
            ]
            return {"text": "", "calls": [{"tool": tool["name"], "arguments": {name: entries}}]}
    if keys := re.findall(r'"(\w+)": ', request["messages"][-1]["text"]):
        entries = [_fill(lesson, {key: {} for key in keys}) for lesson in lessons]
        return {"text": json.dumps({"lessons": entries} if keys[0] == "lessons" else entries), "calls": []}
    lines = [
        f"* {lesson['lesson']} Holds in: {', '.join(lesson['place'])}. Evidence: turn {lesson['turn']}, "
        f"`{lesson['failed']}` failed; turn {lesson['passed_turn']}, `{lesson['passed']}` passed."
        for lesson in lessons
    ]
    return {"text": "\n".join(lines) or "none", "calls": []}


def _fill(lesson: Mapping[str, Any], properties: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a lesson under the names that were asked for, in their types."""
    meanings = {"^lesson$|text|sentence": "lesson", "place|path|where|hold": "place", "fail": "failed", "pass|work": "passed",
                "turn|evidence": "turn"}  # fmt: skip
    entry = {}
    for name, schema in properties.items():
        key = next((key for pattern, key in meanings.items() if re.search(pattern, name)), None)
        if key:
            value = lesson[key]
            if schema.get("type") == "string":
                value = ", ".join(value) if isinstance(value, list) else str(value)
            entry[name] = [value] if schema.get("type") == "array" and not isinstance(value, list) else value
    return entry


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the next answer in a conversation about a task, to a letter, or to the question for lessons."""
    messages, turn = request["messages"], request["turn"]
    if turn["about"]["kind"] != "task":
        return {"text": "Thank you.", "calls": [{"tool": turn["about"]["next"], "arguments": {"body": "Thank you."}}]}
    opening = next(message["text"] for message in messages if message["role"] == "user")
    text, _, sections = opening.partition("\n## ")
    begin = next((at for at, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    system = "\n".join(message["text"] for message in messages[:begin] if message["role"] == "system")
    coder = Coder(turn["agent"], turn["about"]["id"].partition(".")[0], text, items(f"{system}\n\n{sections}"))
    work = coder.work()
    commands = next(work)
    last = messages[-1]
    last_turn = next((message for message in reversed(messages) if message["role"] == "assistant"), {})
    has_finished = any(call["tool"] == "finish_task" for call in last_turn.get("calls", ()))
    is_lesson_question = has_finished and last["role"] == "user" and "lesson" in last["text"].lower()
    outcomes = _outcomes(messages)
    for at, outcome in enumerate(outcomes):
        coder.turn = at + 1
        coder.seen.append(outcome.output)
        if is_lesson_question and at + 1 == len(outcomes):
            advice = [line for message in messages if message is not last for line in _advice(message)]
            return answer_lessons(coder.lessons(advice), request)
        commands = work.send(outcome)
    schemas = {tool["name"]: tool.get("parameters", {}) for tool in request.get("tools", ())}
    return {"text": "", "calls": [_call(command, coder, schemas) for command in commands]}


def _advice(message: Mapping[str, Any]) -> list[str]:
    """Return what a text tells its reader to remember."""
    text = "\n".join(re.findall(r"<material.*?</material>", message["text"], re.DOTALL))
    return _ADVICE.findall(message["text"] if message["role"] == "tool" else text)


def main() -> None:
    request = json.load(sys.stdin)
    if "messages" not in request:
        print("none")
        return
    thought = answer(request)
    read = sum(len(message["text"]) + len(json.dumps(message.get("calls", ""))) for message in request["messages"])
    read += len(json.dumps(request["tools"]))
    thought["usage"] = {"tokens_in": read // 4, "tokens_out": len(json.dumps(thought)) // 4 + 1}
    print(json.dumps(thought))


if __name__ == "__main__":
    main()
