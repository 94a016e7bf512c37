"""hivemind: a runtime for swarms of agents that share a folder.

`Hive.open(path)` opens a hive, `Hive.init(path)` creates one. Modules are imported at first use, so `import hivemind` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hivemind.errors import HivemindError, UserError
    from hivemind.hive import Hive

__all__ = ["Hive", "HivemindError", "UserError", "__version__"]

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    if name == "Hive":
        from hivemind.hive import Hive

        return Hive
    if name in ("HivemindError", "UserError"):
        from hivemind import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'hivemind' has no attribute {name!r}")
