"""Look at the hive in a browser.

examples:
  hivemind web
  hivemind web --port 8800
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from hivemind.cli.command import Arg, command
from hivemind.cli.open_hive import find_layout
from hivemind.cli.output import print_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.layout import Layout


@command("web", find_layout, fixed_format=True)
def web(layout: Layout, *, port: Annotated[int, Arg(maximum=65_535)] = 8764) -> None:
    """Show the hive in a browser: what needs attention, what the agents do, how results came about, what they cost.

    Serves only this machine, until Ctrl-C. The link contains a secret that is new at each start: anybody with the link
    may see and do everything that you may.

    arguments:
      --port N  the port (default: 8764; 0: any free port)

    examples:
      hivemind web --port 0
    """
    try:
        from hivemind.web.app import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "jinja2", "python_multipart"):
            raise
        raise UserError(f"the page needs {error.name}", remedy="pip install 'hivemind-swarm[web]'") from None
    serve(layout.root, port, _print_link)


def _print_link(link: str) -> None:
    print_line(f"{link}")
    sys.stdout.flush()
