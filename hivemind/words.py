"""Stop words, generic words of questions, and functions that put durations and values into words."""

from __future__ import annotations

_MAX_CHARS = 60


def duration(seconds: float) -> str:
    """Format a duration in the largest unit that fits twice: `12 s`, `5 min`, `3 h`, `9 d`. Less than 0 becomes `0 s`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(max(0.0, seconds))} s"


def short_repr(value: object) -> str:
    """Format a value for a sentence, in at most 60 characters."""
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
