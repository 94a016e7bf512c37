"""The example of the working memory's design, run as it is written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import hivemind.memory as memory

EXAMPLE = """
# Initialize memory system
manager = WorkingMemoryManager(max_tokens=100000)
selector = MemorySelector(token_counter)
loader = ContentLoader("/hivemind")
builder = ContextBuilder(loader)

# Add ROM (always critical)
rom_memory = FileMemoryBlock(
    location="/hivemind/agents/agent_001/ROM.md",
    priority=Priority.CRITICAL,
    confidence=1.0
)
manager.add_memory(rom_memory)

# Add current task
task_memory = TaskMemoryBlock(
    task_id="TASK-042",
    description="Implement authentication module",
    project="project_alpha",
    status="in_progress",
    priority=Priority.HIGH
)
manager.add_memory(task_memory)

# Add relevant files
for file_path in relevant_files:
    file_memory = FileMemoryBlock(
        location=file_path,
        priority=Priority.MEDIUM,
        confidence=0.8
    )
    manager.add_memory(file_memory)

# Build context for LLM
selected = selector.select_memories(manager.symbolic_memory, manager.max_tokens)
context = builder.build_context(selected)

# Send to LLM
llm_response = llm.complete(json.dumps(context))
"""


class Llm:
    def complete(self, text: str) -> str:
        self.asked = json.loads(text)
        return "done"


def run(code: str, relevant_files: list[str]) -> dict[str, object]:
    names = {name: getattr(memory, name) for name in memory.__all__}
    names |= {"json": json, "token_counter": memory.count_tokens, "relevant_files": relevant_files, "llm": Llm()}
    exec(code, names)
    return names


def test_the_example_runs_as_it_is_written() -> None:
    names = run(EXAMPLE, ["/hivemind/project/auth.py"])
    assert names["llm_response"] == "done"
    entries = names["llm"].asked  # type: ignore[attr-defined]
    assert [entry["id"] for entry in entries] == [
        "/hivemind/agents/agent_001/ROM.md", "task:TASK-042", "/hivemind/project/auth.py",
    ]  # fmt: skip
    assert entries[1]["content"] == "Implement authentication module"


@pytest.mark.parametrize("absolute", [True, False])
def test_the_example_finds_files_below_its_root_by_absolute_and_by_relative_locations(
    tmp_path: Path, absolute: bool
) -> None:
    (tmp_path / "agents/agent_001").mkdir(parents=True)
    (tmp_path / "agents/agent_001/ROM.md").write_text("You are agent 1.")
    (tmp_path / "auth.py").write_text("def login(): ...\n")
    code = re.sub(r'"/hivemind"', repr(os.fspath(tmp_path)), EXAMPLE)
    code = code.replace("/hivemind/", f"{tmp_path}/" if absolute else "")
    names = run(code, [f"{tmp_path}/auth.py" if absolute else "auth.py"])
    rom, _, auth = names["llm"].asked  # type: ignore[attr-defined]
    assert (rom["content"], auth["content"]) == ("You are agent 1.", "def login(): ...\n")
    assert rom["priority"] == "critical"
    assert auth["metadata"]["source"].endswith("auth.py")
