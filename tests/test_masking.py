from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.masking import MASK, Masker, is_secret_name, keep_secrets, mask, mask_values

SECRETS = [
    "sk-ant-api03-Zb1ZZZZZZZZZZZZZZZZZ",
    "sk-proj-1234567890abcdefghij",
    "sk_live_1234567890abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijklmnop",
    "glpat-abcdefghij1234567890",
    "xoxb-123456789012-abcdefghij",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nabc+/=\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_key_is_masked_wherever_it_stands_and_the_rest_is_not(secret):
    for before, after in (("", ""), ("key: ", " and more\n"), ('"', '"'), ("(", ")"), ("x=", "\nnext")):
        told = mask(before + secret + after)
        assert told.replace("\n", "") == (before + MASK + after).replace("\n", "")
        assert told.count("\n") == (before + secret + after).count("\n")
        assert mask(told) == told
    assert mask_values({"text": f"a\n{secret}\nb"})["text"].split() == ["a", MASK, "b"]
    line = json.dumps({"text": f"a {secret} b"})
    assert json.loads(mask(line)) == {"text": f"a {MASK} b"}
    assert json.loads(json.loads(mask(json.dumps(line)))) == {"text": f"a {MASK} b"}


def test_tokens_and_passwords_are_masked_in_their_places():
    assert mask("Authorization: Bearer abcdef1234567890.xyz") == f"Authorization: Bearer {MASK}"
    assert mask("postgres://bob:s3cret@host/db") == f"postgres://{MASK}@host/db"
    assert mask("postgres://bob:sunshine@host/db") == f"postgres://{MASK}@host/db"


@pytest.mark.parametrize(
    "user_and_password",
    ["scott:tiger", "user:password", "guest:guest", "rabbit_user:rabbit_user", "USER:PASSWORD", "<user>:<password>",
     "{user}:{password}", "$USER:$PASSWORD", "${USER}:${DB_PASSWORD}", "me:my_secret", "aws_key:aws_secret_access_key"],
)  # fmt: skip
def test_a_password_in_an_address_that_is_an_example_is_no_secret(user_and_password):
    assert mask(f"postgres://{user_and_password}@host/db") == f"postgres://{user_and_password}@host/db"


@pytest.mark.parametrize("password", ["$ecr3t.4711", "monkey", "Password1", "kx%40jj5%2Fg", "tiger^5HHH", "pass4711"])
def test_a_password_in_an_address_that_only_looks_like_a_placeholder_is_masked(password):
    assert mask(f"postgres://bob:{password}@host/db") == f"postgres://{MASK}@host/db"


@pytest.mark.parametrize(
    "text",
    ["task-list-of-things-1234567890abcdef", "what-is-a-lease.s1", "http://127.0.0.1:8765/mcp", "a sk-12 b", "AKIA", "gh_pages"],
)  # fmt: skip
def test_what_is_no_key_is_left_alone(text):
    assert mask(text) == text


@given(st.text(), st.sampled_from(SECRETS), st.text())
def test_masking_twice_is_masking_once_and_keeps_the_lines(before, secret, after):
    told = mask(f"{before} {secret} {after}")
    assert secret not in told
    assert mask(told) == told
    assert told.count("\n") == f"{before} {secret} {after}".count("\n")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("OPENAI_API_KEY", True), ("GITHUB_TOKEN", True), ("DB_PASSWORD", True), ("AWS_SECRET_ACCESS_KEY", True), ("MYKEY", True),
        ("PATH", False), ("PWD", False), ("KEYBOARD", False), ("SSH_AUTH_SOCK", False), ("HOME", False),
    ],
)  # fmt: skip
def test_names_of_secrets(name, is_one):
    assert is_secret_name(name) is is_one


def told(values, *texts):
    """What `masked` makes of texts in a process whose environment has these values."""
    code = "import json,sys; from hivemind.masking import mask_values; print(json.dumps(mask_values(json.load(sys.stdin))))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(texts), capture_output=True, text=True, check=True,
        env={**os.environ, **values},
    )  # fmt: skip
    return json.loads(done.stdout)


def test_values_of_variables_that_are_named_like_keys_are_masked(tmp_path):
    (tmp_path / "key.pem").touch()
    key = 'odd"value\\42'
    values = {"MY_API_KEY": key, "DB_PASSWORD": "/slash/99+x", "A_KEY": str(tmp_path / "key.pem"), "B_TOKEN": "ab12"}
    texts = [*values.values(), json.dumps(key), {"deep": ["x/slash/99+xx"]}]
    assert told(values, *texts) == [MASK, MASK, values["A_KEY"], "ab12", f'"{MASK}"', {"deep": [f"x{MASK}x"]}]


def test_a_password_that_is_a_word_or_a_number_is_masked_where_it_stands_alone():
    values = {"DB_PASSWORD": "sunshine", "GATE_SECRET": "471112", "AUTH_METHOD": "plaintext", "TOKEN_LIMIT": "100000"}
    masked_ones = ["sunshine", "password: sunshine.", "a\nsunshine\tb", '{"p": "a\\nsunshine"}', "is it 471112?"]
    kept = ["sunshines", "songs/sunshine.md", "walk-in-sunshine", "1471112", "0.471112", "plaintext", "100000"]
    found = told(values, *masked_ones, *kept)
    assert all(MASK in one and "sunshine" not in one and "471112" not in one for one in found[: len(masked_ones)])
    assert found[len(masked_ones) :] == kept


def test_words_that_stand_for_no_secret_are_no_secret():
    values = {"OPENAI_API_KEY": "ollama", "DB_PASSWORD": "postgres", "LOGIN_TOKEN": "password"}
    assert told(values, "ollama serves postgres; password?") == ["ollama serves postgres; password?"]


def test_a_password_that_is_a_word_breaks_no_record():
    record = {"kind": "sunshine", "task_id": "sunshine", "sunshine": 1, "seq": 471112, "text": "sunshine"}
    [found] = told({"DB_PASSWORD": "sunshine", "GATE_SECRET": "471112"}, record)
    assert found == {**record, "text": MASK}


def test_a_secret_is_found_beside_any_number_of_long_words():
    words = "a_word_that_is_no_secret " * 50 + "\U0001f600" * 3
    assert mask(f"{words}{SECRETS[3]} {words}") == f"{words}{MASK} {words}"


@pytest.mark.parametrize("before", ["\a", "\b", "\n", '"', "\x1b"])
def test_a_secret_is_found_behind_any_character_that_json_escapes(before):
    secret = "sk-" + "a1b2" * 8
    assert mask_values({"text": [f"x{before}{secret}"]}) == {"text": [f"x{before}{MASK}"]}
    assert secret not in mask(json.dumps(f"x{before}{secret}"))


def test_values_without_secrets_are_given_back():
    assert mask_values({"a": [1, None, "x", ("y", 2.5)]}) == {"a": [1, None, "x", ("y", 2.5)]}


PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\n{}-----END RSA PRIVATE KEY-----\n".format("MIIEpAIBAAKCAQEA7+/=\n" * 25)
ENCRYPTED = PRIVATE_KEY.replace("KEY-----\nM", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\nM", 1)
OF_SEVERAL_LINES = "first line of 1 secret\nand (its) second line\nthe third"


@pytest.fixture
def secret_of_several_lines():
    keep_secrets({"TEST_OF_SEVERAL_LINES_SECRET": OF_SEVERAL_LINES})
    return OF_SEVERAL_LINES


def in_parts(text, sizes):
    """What a Masker makes of a text that comes in parts of these sizes, over and over."""
    masker, found, at, turn = Masker(), [], 0, 0
    while at < len(text):
        found.append(masker.feed(text[at : at + sizes[turn % len(sizes)]]))
        at, turn = at + sizes[turn % len(sizes)], turn + 1
    return "".join([*found, masker.close()])


@pytest.mark.parametrize("before", ["", "key: ", "abc", "1:"])
@pytest.mark.parametrize("key", [PRIVATE_KEY, ENCRYPTED, PRIVATE_KEY.replace("KEY-", "KEY BLOCK-")])
def test_a_private_key_is_masked_whatever_stands_before_it_and_whatever_headers_it_has(key, before):
    assert mask(f"{before}{key}end.") == f"{before}{MASK}" + "\n" * (key.count("\n") - 1) + "\nend."


@pytest.mark.parametrize("prefix", ["> ", ">> ", "# ", "// ", "* ", "| ", "+", "-", "    ", "1: "])
def test_a_private_key_is_masked_though_something_stands_before_each_of_its_lines(prefix):
    quoted = "".join(f"{prefix}{line}\n" for line in ["Look:", *PRIVATE_KEY.splitlines(), "That was it."])
    assert "MIIE" not in mask(quoted)
    assert mask(quoted).count("\n") == quoted.count("\n")
    assert mask(quoted).endswith("That was it.\n")
    assert in_parts(quoted, [7]) == in_parts(quoted, [100]) == mask(quoted)


PIECES = [*SECRETS, PRIVATE_KEY, ENCRYPTED, OF_SEVERAL_LINES, "\n", "\n", "a. b ", "x" * 300, f"Bearer {'q' * 20}"]


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.lists(st.integers(1, 400), min_size=1, max_size=5))
def test_a_text_that_comes_in_parts_is_masked_as_the_whole(pieces, sizes):
    keep_secrets({"TEST_OF_SEVERAL_LINES_SECRET": OF_SEVERAL_LINES})
    text = "".join(pieces)
    assert in_parts(text, sizes) == mask(text)


@pytest.mark.parametrize("size", [1000, 65_536, 100_000])
@pytest.mark.parametrize("secret", [*SECRETS, OF_SEVERAL_LINES, PRIVATE_KEY, "Bearer abcdef1234567890"])
@pytest.mark.parametrize("filling", ["a line.\n", "one line without an end, ", "xyz"])
def test_no_secret_gets_out_of_a_long_text_that_comes_in_parts(secret, filling, size, secret_of_several_lines):
    beginning = (filling * 65_536)[: 65_536 - len(secret) // 2]
    text = f"{beginning} {secret} {filling * 10_000} {secret} end"
    told = in_parts(text, [size])
    assert told == mask(text)
    assert told.count(MASK) == 2


@pytest.mark.parametrize(
    "endless", ["x" * 4096, "sk-1234567890123456" * 200, "a b c " * 1000, "-----BEGIN PRIVATE KEY-----MII"]
)
def test_what_is_held_back_has_a_bound(endless):
    masker = Masker()
    for _ in range(100):
        masker.feed(endless)
    assert len(masker.close()) <= 65_536 + len(endless)


def test_a_line_is_told_as_soon_as_it_is_whole_and_a_key_before_it_has_ended():
    masker = Masker()
    assert masker.feed("one\ntw") == "one\n"
    assert masker.feed("o\n-----BEGIN PRIVATE KEY-----\nMII") == f"two\n{MASK}\n"
    assert masker.feed("EpA\n") == "\n"
    assert masker.feed("-----END PRIVATE KEY-----\nthree") == "\n"
    assert masker.close() == "three"
