"""Languages: tell a text's language by its stop words, and stem its words by Snowball's rules (English: SQLite's Porter)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from hivemind.search.words import Stemmer, words_of
from hivemind.words import STOP_WORDS

_MIN_STEM = 3  # letters; words that begin with a shorter stem are not taken for its forms
_TEXT_WORDS = 2_000  # words of a long text that are looked at
_STOP_WORDS = {
    "english": "the of and to is in that it for with as are this be on not you how what which does do when can why where my i",
    "german": "der die und das ist nicht ein eine den dem mit von zu im für auf sich wie ich kann man was welche wo warum mein"
    " ohne meine wird werden bei oder aus als einen einer eines des mir mich heißt ob",
    "french": "le la les des et est un une du que qui dans pour sur pas ne je comment quel quelle quels quelles où pourquoi mon"
    " ma mes avec puis-je faut il elle sont aux au ce cette ou par",
    "spanish": "el la los las de y es un una que en para por con no se cómo qué cuál cuáles dónde cuándo mi mis del al lo su"
    " está son como puedo hay",
    "italian": "il lo la gli le di e è un una che in per con non si come quale quali dove quando perché mio mia del della dei"
    " sono posso nel alla da",
    "portuguese": "o os as de e é um uma que em para por com não se como qual quais onde quando meu minha do da dos das no na"
    " está são posso ao",
    "dutch": "de het een en van niet dat die in op te voor met hoe wat welke waar wanneer mijn ik kan er aan zijn wordt of"
    " naar bij om als",
    "swedish": "och att det är en ett inte som på av för med hur vad vilken vilket var när min mitt jag kan den om till från",
    "danish": "og at det er en et ikke som på af med hvordan hvad hvilken hvilket hvor hvornår min mit jeg kan den om til fra",
    "norwegian": "og å det er en et ikke som på av for med hvordan hva hvilken hvilket hvor når min mitt jeg kan den om til fra",
    "finnish": "ja on ei se että joka mikä miten missä milloin miksi minun voinko voi kuin tai ovat mutta kun tämä",
    "hungarian": "az és egy hogy nem van mi hogyan melyik hol mikor miért meg de ha vagy ez lehet",
    "polish": "w na z się nie jest że jak co który która które gdzie kiedy dlaczego mój moja czy mogę dla po od",
    "romanian": "și de la un o este nu în cu pe care ce cum unde când pentru din sunt mai sau al ale să pot",
    "russian": "и в на не с что как это по из у от для к а но где когда почему какой какая какие мой моя ли или я можно",
}
STOP_WORDS_OF = {language: frozenset(words.split()) for language, words in _STOP_WORDS.items()}


def language_of(text: str, default: str = "") -> str:
    """Return the language whose stop words occur most often in a text, or `default` if no language leads."""
    words = words_of(text)[:_TEXT_WORDS]
    counts = {name: sum(word in stop_words for word in words) for name, stop_words in STOP_WORDS_OF.items()}
    highest = max(counts.values())
    leading = [name for name, count in counts.items() if count == highest > 0] or [default]
    return default if default in leading else leading[0]  # English comes first


@lru_cache(maxsize=65_536)
def fold(word: str) -> str:
    """Return a word without accents, as the full-text index has it."""
    return (
        word
        if word.isascii()
        else "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    )


class SnowballStemmer(Stemmer):
    """The stemmer of a language other than English."""

    def __init__(self, language: str) -> None:
        super().__init__()
        import snowballstemmer  # imported only for a question in such a language

        self._rules: Any = snowballstemmer.stemmer(language)
        self.stop_words = STOP_WORDS | STOP_WORDS_OF[language]

    def _learn(self, words: Iterable[str]) -> None:
        self._stems.update((word, fold(self._rules.stemWord(word))) for word in words)

    def pattern(self, word: str) -> str:
        """Return a full-text query for the words that begin like the stem: the index has no stems of this language."""
        (stem,) = self([word])
        if len(stem) < _MIN_STEM:
            return f'"{word}"'
        forms = dict.fromkeys((stem, stem.replace("ss", "ß")))
        return " OR ".join([f'"{word}"', *(f'"{form}" *' for form in forms)])
