from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.errors import UnknownVersion, UserError
from hivemind.fs import load_record, save_record

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.dictionaries(st.text().filter(lambda key: key not in ("kind", "version")), _JSON, max_size=5)


@given(_FIELDS)
def test_what_was_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, object]) -> None:
    path = tmp_path_factory.getbasetemp() / "record"
    save_record(path, "claim", 1, fields, durable=False)
    assert load_record(path, "claim", 1) == fields


def test_no_file_is_no_record(tmp_path: Path) -> None:
    assert load_record(tmp_path / "none", "claim", 1) is None


def test_another_version_is_refused_and_kept(tmp_path: Path) -> None:
    save_record(tmp_path / "a", "claim", 2, {"x": 1})
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(UnknownVersion, match="version 2"):
        load_record(tmp_path / "a", "claim", 1)
    assert (tmp_path / "a").read_bytes() == before


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"kind": "other", "version": 1}', b"\xff\xfe", b"null", b'{"kind":']
)
def test_a_damaged_record_is_refused_and_kept(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a").write_bytes(raw)
    with pytest.raises(UserError):
        load_record(tmp_path / "a", "claim", 1)
    assert (tmp_path / "a").read_bytes() == raw
