"""Regular expressions that are compiled at their first use, because a short command uses few of the patterns that it imports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pattern = re.compile
else:

    class pattern:  # noqa: N801 - is called like re.compile
        """A regular expression with all attributes of the result of `re.compile`, which is called at the first use."""

        def __init__(self, text: str | bytes, flags: int = 0) -> None:
            self.pattern, self._flags = text, flags

        def __getattr__(self, name: str) -> Any:
            compiled = re.compile(self.pattern, self._flags)
            vars(self).update({method: getattr(compiled, method) for method in dir(compiled) if method[0] != "_"})
            return vars(self)[name]
