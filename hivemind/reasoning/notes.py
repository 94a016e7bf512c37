"""Notes: what someone said, with the role of who said it (seed 000, *Notes*)."""

from __future__ import annotations

from dataclasses import dataclass

from hivemind.reasoning.errors import GraphError

__all__ = ["Notes", "as_thought"]


@dataclass(slots=True, unsafe_hash=True)  # not frozen: that makes each one four times as dear, and there are many
class Notes:
    """One utterance, never changed. `role` is assistant, user, system, or an agent's own name."""

    role: str
    content: str

    def as_dict(self) -> dict[str, str]:
        """`{"role": …, "content": …}`."""
        return {"role": self.role, "content": self.content}


def as_thought(thought: object) -> str | list[Notes]:
    """A thought as a node holds it: a text, or a list of Notes made from Notes or mappings. Raises GraphError."""
    if isinstance(thought, str):
        return thought
    if not isinstance(thought, list | tuple):
        raise GraphError(f"a thought is a text or a list of notes, not {type(thought).__name__}")
    notes = []
    for item in thought:
        if item.__class__ is Notes:
            notes.append(item)
            continue
        try:
            role, content = item["role"], item["content"]
        except (KeyError, TypeError, IndexError):
            raise _no_note(item) from None
        if (role.__class__ is str and content.__class__ is str) or (isinstance(role, str) and isinstance(content, str)):
            notes.append(Notes(role, content))
        else:
            raise _no_note(item)
    return notes


def _no_note(item: object) -> GraphError:
    return GraphError(f"a note has a role and a content, both text, not {str(item)[:80]!r}")
