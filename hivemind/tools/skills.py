"""The tool that reads a skill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from hivemind.taskrun.project import skills_of
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext


class ReadSkill(Arguments):
    name: str | None = Field(None, description="default: list the skills")


def _skill_text(result: Mapping[str, Any]) -> str:
    if "text" in result:
        return f"{result['path']}\n\n{result['text']}"
    lines = [*result["skills"], *(f"{path} cannot be used: {problem}" for path, problem in result["problems"].items())]
    return "\n".join(lines) or "there are no skills"


@tool(text=_skill_text, is_read_only=True)
def read_skill(context: ToolContext, arguments: ReadSkill) -> dict[str, Any]:
    """Read a skill of the project or the hive: how to do a kind of work. Paths in it start at its own folder."""
    work = context.focus.work
    skills = skills_of(context.hive.layout, () if work is None else work.projects)
    if arguments.name is None:
        lines = [skill.line for skill in skills.values() if skill.problem is None]
        return {"skills": lines, "problems": {skill.path: skill.problem for skill in skills.values() if skill.problem}}
    skill = skills.get(arguments.name)
    if skill is None:
        raise ToolProblem(f"there is no skill {arguments.name!r}", remedy=f"skills: {', '.join(skills) or 'none'}")
    if skill.problem is not None:
        raise ToolProblem(skill.problem, location=skill.path)
    return {"name": skill.name, "path": skill.path, "text": skill.text}


SKILL_TOOLS = (read_skill,)
