"""What can go wrong with a document, each with its own type (spec 5); all of them are errors a person can mend."""

from __future__ import annotations

from hivemind.errors import UserError

__all__ = [
    "CycleError", "DamagedError", "DocmemError", "MissingLibraryError", "NodeGoneError", "NodeNotFoundError",
    "OptimisticLockError", "ReadonlyError", "UnwritableError",
]  # fmt: skip


class DocmemError(UserError):
    """Root of the errors of this room."""


class DamagedError(DocmemError):
    """The database is damaged; `mend` saves what can be read of it (documents/mending.py)."""


class UnwritableError(DocmemError):
    """Files have changed, and what they say now cannot be written where the documents are: what was read in last is there."""


class MissingLibraryError(DocmemError):
    """The file needs a library of the extra `docs` that is not installed (yet)."""


class NodeNotFoundError(DocmemError):
    """No node has this id."""

    def __init__(self, node_id: object) -> None:
        what = (
            f"there is no node {node_id!r}" if isinstance(node_id, str) else "an id is text, and so names no node here"
        )
        super().__init__(what, mend="`find` and `roots` show what there is")
        self.node_id = node_id


class OptimisticLockError(DocmemError):
    """The node is not in the state that the caller expected; nothing was changed. `reason` is "changed" or "gone"."""

    node_id: object
    reason = "changed"

    def __init__(self, node_id: str, expected: str, actual: str | None) -> None:
        what = "has changed since" if actual is not None else "is gone"
        mend = "read it again, then decide anew"
        DocmemError.__init__(self, f"node {node_id!r} {what}; nothing was written", mend=mend)  # see NodeGoneError
        self.node_id = node_id
        self.expected = expected
        self.actual = actual


class NodeGoneError(OptimisticLockError, NodeNotFoundError):
    """The node that the caller expected in a certain state was deleted meanwhile."""

    reason = "gone"

    def __init__(self, node_id: str, expected: str) -> None:
        OptimisticLockError.__init__(self, node_id, expected, None)


class ReadonlyError(DocmemError):
    """A readonly node refuses changes of its text and its context (seed 003, *Readonly Metadata*)."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"node {node_id!r} is readonly", mend="put a note after it: add_note(node_id, text, author)")
        self.node_id = node_id


class CycleError(DocmemError):
    """A node cannot become a part of itself (seed 003, *Move*)."""

    def __init__(self, node_id: str, target_id: str) -> None:
        super().__init__(f"node {node_id!r} cannot move to {target_id!r}, which is itself or a part of it")
        self.node_id = node_id
        self.target_id = target_id
