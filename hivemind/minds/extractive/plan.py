"""Plan by rule: one step for each list item or question in a task's text, with the words around it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hivemind.documents.wrong_quotes import calls_wrong
from hivemind.frozen import frozen
from hivemind.search.words import significant_words
from hivemind.words import GENERIC_WORDS

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^ {0,3}(?:[-*+]|\d{1,4}[.)])\s+(?:\[[ xX]\]\s+)?(?P<text>\S.*)$")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s")
SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
"""Matches the gap between two sentences of a text on one line."""
_FEW_WORDS = r"(?:[ \t]+[\w.'-]+){0,3}[ \t]*"
_GREETING = re.compile(
    rf"(?im)\A\s*(?:hi|hello|hey|dear|good (?:morning|day|afternoon|evening)|hallo|liebe[rs]?|guten (?:morgen|tag|abend)|bonjour"
    rf"|hola|ciao){_FEW_WORDS}[,!:.]?[ \t]*$"
)
_SIGNATURE = re.compile(
    rf"(?im)^(?:-- ?|(?:many thanks|thanks|thank you|(?:kind |best )?regards|best(?: wishes)?|cheers|sincerely|yours|danke"
    rf"|vielen dank|(?:viele|liebe|mit freundlichen) grüße\w?|merci|gracias){_FEW_WORDS}[,.!]?[ \t]*)$"
    r"(?:\n[^?\n]{0,60}){0,5}\s*\Z"
)
_REFERENCE = re.compile(
    r"(?i)\b(?:it(?! possible| take)|this|that|these|those|them|they|its|their|es|dies(?:e[mnrs]?)?|ihn|ihm|ihnen"
    r"|da(?:für|gegen|mit|ran|rauf|von|zu)|das(?=\W*$))\b"
)
"""Matches words by which a question refers to the sentence before it."""
_ADDITION = re.compile(r"(?m)^Added by \S+ at \S+:\n")
_CONTEXT_WORDS = 60
_MAX_QUESTION_CHARS = 2_000


@frozen
class Question:
    """A question in a text. `context` are the nearest words around it. `title` is set if the question is a whole text."""

    text: str
    context: str = ""
    title: str = ""

    @property
    def search_text(self) -> str:
        """The text to search for: the question, and the sentence before it if the question refers to that and has few words
        of its own, such as "How do I avoid it?"."""
        own_words = [word for word in significant_words(self.text) if word not in GENERIC_WORDS]
        if not self.context or len(own_words) > 2 or not _REFERENCE.search(self.text):
            return self.text
        return f"{SENTENCE.split(self.context)[0]} {self.text}"


def plan_steps(title: str, text: str) -> list[Question]:
    """Return the list items and questions of a task's text in order, or the whole text as one question if there are none.

    Items and questions in texts that were added to the task come last. Repeated questions and fenced code are skipped. The list
    is never empty.
    """
    text, *additions = _ADDITION.split(text)
    questions = _items_and_questions(text)
    if len(questions) > 1 and questions[0].text == _squeeze(title) and _HEADING.match(text.lstrip()):
        del questions[0]  # the title is a heading over its items
    if not questions:
        statements = [addition for addition in additions if "?" not in addition and not calls_wrong(addition)]
        questions = [_whole_text_question(title, "\n".join([text, *statements]))]
    for addition in additions:
        questions += _items_and_questions(addition)
    return [*{question.text: question for question in questions}.values()]


def questions_in(subject: str, text: str) -> list[Question]:
    """Return the questions in a mail's body. If it has none, return the subject if that is a question, or else the whole body as
    one question."""
    questions = {question.text: question for question in _items_and_questions(text) if question.text.endswith("?")}
    if questions:
        return [*questions.values()]
    if subject.rstrip().endswith("?"):
        return [Question(_squeeze(subject))]
    return [_whole_text_question("", text)] if text.strip() else []


def _whole_text_question(title: str, text: str) -> Question:
    """Return a text without questions and list items as one question. The title comes first unless the text contains it."""
    title, body = _squeeze(title), _squeeze(_without_courtesies(text)) or _squeeze(text)
    question = body if title in body else f"{title}. {body}"
    return Question(question[:_MAX_QUESTION_CHARS] or "(an empty task)", title=title or SENTENCE.split(body)[0][:200])


def _without_courtesies(text: str) -> str:
    return _SIGNATURE.sub("", _GREETING.sub("", text, count=1))


def _items_and_questions(text: str) -> list[Question]:
    questions: list[Question] = []
    previous_sentences: list[str] = []  # the sentences of the paragraph above
    paragraph: list[str] = []
    item: list[str] = []
    is_fenced = False

    def close() -> None:
        nonlocal previous_sentences
        if item:
            item_text = _squeeze(" ".join(item))
            questions.append(
                Question(item_text, _nearest_words([*previous_sentences, item_text], len(previous_sentences)))
            )
        elif sentences := [sentence for sentence in SENTENCE.split(_squeeze(" ".join(paragraph))) if sentence]:
            context_sentences = [*previous_sentences, *sentences]
            for position, sentence in enumerate(sentences, len(previous_sentences)):
                if sentence.rstrip("\"')]").endswith("?"):
                    questions.append(Question(sentence, _nearest_words(context_sentences, position)))
            previous_sentences = sentences
        item.clear()
        paragraph.clear()

    for line in _without_courtesies(text).splitlines():
        if _FENCE.match(line):
            is_fenced = not is_fenced
            close()
        elif is_fenced or line.lstrip().startswith(">"):
            continue
        elif item_start := _ITEM.match(line):
            close()
            item.append(item_start["text"])
        elif not line.strip():
            close()
        elif item and line[:1].isspace():
            item.append(line)
        else:
            if item:
                close()
            paragraph.append(_HEADING.sub("", line))
            if _HEADING.match(line):
                close()
    close()
    return questions


def _nearest_words(sentences: Sequence[str], position: int) -> str:
    """Return the words of the sentences around a position, nearest sentence first."""
    window = range(max(0, position - _CONTEXT_WORDS), min(len(sentences), position + _CONTEXT_WORDS))
    nearby_positions = sorted(
        (other_position for other_position in window if other_position != position),
        key=lambda place: abs(place - position),
    )
    return " ".join(" ".join(sentences[place] for place in nearby_positions).split()[:_CONTEXT_WORDS])


def _squeeze(text: str) -> str:
    return " ".join(text.split())
