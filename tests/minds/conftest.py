"""One server that plays the model, for all tests of a module; it forgets everything between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.minds.asking import Clock, Counted, note
from tests.minds.server import ModelServer, model_server


@pytest.fixture(scope="module")
def playing() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
def server(playing: ModelServer) -> ModelServer:
    playing.forget()
    playing.think = note
    return playing


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter() -> Counted:
    return Counted()
