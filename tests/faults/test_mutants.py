"""Every mutant is a change of the program as it stands: who changes that place changes the patch."""

from __future__ import annotations

from tests.faults.mutants import REPOSITORY, mutants, sources


def test_every_mutant_still_breaks_its_promise_where_that_is_kept() -> None:
    files = sources(REPOSITORY)
    for mutant in mutants():
        for path, text in mutant.patch(files).items():
            compile(text, path, "exec")
