"""Modules of the package do not import each other in circles. (The rooms' layers are import-linter's: `make check`.)"""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp


def test_no_modules_import_each_other_in_a_circle_not_even_for_their_types() -> None:
    graph = grimp.build_graph("hivemind", exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
