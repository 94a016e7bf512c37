"""Look at the hive in a browser.

examples:
  hivemind web
  hivemind web --port 8800
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from hivemind.cli.command import Arg, command
from hivemind.cli.opening import layout_of
from hivemind.cli.output import say
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.layout import Layout


@command("web", layout_of, own_form=True)
def web(layout: Layout, *, port: Annotated[int, Arg(most=65_535)] = 8764) -> None:
    """Show the hive in a browser: who needs you, what each agent does, how an answer came about, what it costs.

    Serves this machine alone, until Ctrl-C. The link has a secret that is made at each start: who has the link
    may see and do all that you may.

    arguments:
      --port N  where (default: 8764; 0: any that is free)

    examples:
      hivemind web --port 0
    """
    try:
        from hivemind.web.app import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "jinja2", "python_multipart"):
            raise
        raise UserError(f"the page needs {error.name}", mend="pip install 'hivemind-swarm[web]'") from None
    serve(layout.root, port, _tell)


def _tell(link: str) -> None:
    say(f"{link}")
    sys.stdout.flush()
