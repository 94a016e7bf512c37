"""Stop words, which show a text's language, generic words of questions, and durations and values in words."""

from __future__ import annotations

from hivemind.pattern import pattern

_MAX_CHARS = 60
_TEXT_WORDS = 2_000  # words of a long text by which its language is recognised
_WORD = pattern(r"[^\W_]+")
UNSPACED = pattern(r"([\u3005\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+)")


def duration(seconds: float) -> str:
    """Format a duration in the largest unit that gives at least 2: `12 s`, `5 min`, `3 h`, `9 d`. Less than 0 becomes `0 s`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(max(0.0, seconds))} s"


def short_repr(value: object) -> str:
    """Format a value for a sentence. A long value is cut after 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer with thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "…"


def truncate(text: str, max_chars: int) -> str:
    """Return the text, cut to at most `max_chars` characters. An ellipsis marks the cut."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


STOP_WORDS = frozenset(
    """
    a aber about above after again against all als also am an and any are aren as at auch auf aus be
    because been before bei being below between bis bist both but by can cannot could couldn d da
    damit das dass dein dem den der des dich did didn diese dieser dieses dir do doch does doesn
    doing don down du durch during each ein eine einem einen einer eines either else er es euch euer ever
    every few for from further für had hadn has hasn hatte have haven having he her here hers herself
    him himself his how i ich if ihr ihre im in into is isn ist it its itself ja jede jeder just kann kein
    keine können least let ll m man many may me mein mich might mine mir mit more most much muss must
    mustn my myself nach neither nicht no noch nor not now nur ob oder of off ohne on one only onto
    or other ought our ours ourselves out over own per please rather re s same sehr sein seine shall shan
    she should shouldn sich sie since sind so soll some such t than that the their theirs them themselves
    then there these they this those though through thus to too toward towards um und under uns unser
    unter until up upon us ve very vom von vor wann warum was wasn we weil welche welcher welches wem
    wen wenn wer werden were weren what whatever when where whether which while who whoever whom whose why
    wie will wir wird with within without wo woher wohin won would wouldn yet you your yours yourself
    yourselves zu zum zur über
    """.split()  # noqa: SIM905 - a list of words, not of literals
)
"""Words that occur in every text and are never searched."""

GENERIC_WORDS = frozenset(
    """
    actually allow allowed answer available back best bring called case certain change common contain
    contains default define defined describe described describes detail details determine difference
    different do does done exactly example exist exists explain explained find first follow following get
    gets getting give given gives go goes good happen happened happens help include included information
    instead item keep kind know known large last left like list long made main make makes making mean
    meaning means meant mention mentioned name named necessary need needed needs new normally number occur
    often part people point possible provide provided provides purpose put question reason regarding
    required requires right said say says see set several show shows simple small something specific
    specified state stated tell text thing things time times true try type types typical typically use
    used useful user uses using usual usually value want way ways whole work working works
    """.split()  # noqa: SIM905 - a list of words, not of literals
)
"""Words that occur in questions about any subject and have a low weight in search."""

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
    """Return the language whose stop words occur most often in a text.

    Of several languages, `default` comes first, then English. Return `default` if no stop word occurs.
    """
    words = [word.casefold() for word in _WORD.findall(text)[:_TEXT_WORDS]]
    counts = {name: sum(word in stop_words for word in words) for name, stop_words in STOP_WORDS_OF.items()}
    highest = max(counts.values())
    leading = [name for name, count in counts.items() if count == highest > 0] or [default]
    return default if default in leading else leading[0]  # English comes first


def is_unspaced(word: str) -> bool:
    """Return True for a word that begins in Chinese or Japanese, which have no spaces between words."""
    return UNSPACED.match(word) is not None
