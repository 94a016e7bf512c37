from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.documents import Citation
from hivemind.errors import UserError
from hivemind.taskrun.quote_check import Review, read_request, rejected_sources, request_body
from hivemind.taskrun.replies import read_verdict

text = st.text(st.characters(exclude_categories=("Cs",)))
citations = st.lists(
    st.builds(
        Citation,
        path=text,
        start_line=st.integers(1, 10**6),
        end_line=st.integers(1, 10**6),
        digest=st.text("0123456789abcdef", min_size=64, max_size=64),
        text=text,
    ),
    max_size=5,
)


@given(text, citations)
def test_a_request_read_again_asks_for_the_same_citations(title, wanted):
    assert read_request(request_body(title.replace("\n", " ").replace("`", " "), wanted)) == wanted


def test_mail_that_asks_for_nothing_is_no_request():
    assert read_request("Please check the sources of my life.") is None


def test_a_request_that_cannot_be_read_says_so():
    with pytest.raises(UserError, match="is a review request that cannot be read"):
        read_request('```json hivemind-review\n[{"path": 1}]\n```\n')


@given(st.lists(st.sampled_from(["knowledge/a.md:3: stands nowhere", "b: gone"])))
def test_a_verdict_read_again_is_the_same(problems):
    word = "rejected" if problems else "approved"
    verdict = read_verdict("\n".join([f"{word}: 3 citations checked.", *problems]))
    assert verdict == (("rejected", tuple(problems)) if problems else ("approved", ()))


def test_an_answer_that_decides_nothing_is_no_verdict():
    assert read_verdict("I am not sure yet.") is None
    assert read_verdict("approvedly so") is None
    assert read_verdict("Approved!") == ("approved", ())


def test_a_review_is_kept_with_its_task():
    assert Review.of(None) == Review()
    review = Review("asked", "ada", "m@hive", 12.5, 1, ("bob", "ada"), ("why",))
    assert Review.of(json.loads(json.dumps(asdict(review)))) == review


def test_a_verdict_rejects_the_quotes_that_it_names_and_one_in_a_persons_words_names_none():
    one, two = (Citation("knowledge/a.md", line, line, "d" * 64, "text") for line in (1, 11))
    assert rejected_sources([f"{one.source}: stands nowhere"]) == {one.source}
    assert rejected_sources([f"{two.source}: a", f"{one.source}: b"]) == {one.source, two.source}
    assert rejected_sources(["rejected: I do not like knowledge/a.md:1: no"]) == set()
