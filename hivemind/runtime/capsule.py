"""The capsule: where we are, what to do next. The same few lines in every context (spec 3, *Capsule*)."""

from __future__ import annotations

import json
from typing import Any

from hivemind.coordination import StepLease
from hivemind.runtime.focus import Focus

__all__ = ["capsule_entry"]


def capsule_entry(workspace: str, lane: str, focus: Focus, lease: StepLease | None) -> dict[str, Any]:
    """The capsule as a context entry, critical: `where`, `why`, `next {primary, backup}`."""
    where: dict[str, Any] = {"workspace": workspace, "target": focus.target, "lane": lane}
    if focus.step is not None:
        step = focus.step.step
        where["step_focus"] = {"id": step.id, "path": step.path, "title": step.title}
        if lease is not None:
            where["step_focus"]["lease"] = {"holder": lease.holder_agent_id, "expires_seq": lease.expires_seq}
    backup: dict[str, Any] = {"tool": "block_step" if focus.step is not None else "fail_task", "arguments": {}}
    capsule = {"where": where, "why": [], "next": {"primary": focus.next_call(), "backup": backup}}
    return {
        "id": "capsule",
        "content": json.dumps(capsule, ensure_ascii=False),
        "confidence": 1.0,
        "priority": "critical",
        "metadata": {"type": "status", "origin": "hive"},
    }
