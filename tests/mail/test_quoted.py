"""What a person has answered, in the forms that mail programs give a reply: the letter quoted above, below or in between."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from hivemind.mail import Mail
from hivemind.mail.parse import parse_message
from hivemind.mail.quoted import answer_text

ASKED = "Is it done? Answer `approved`, or say what must be done.\n\nHere is the boat.\n-- \nIt floats at 12:30: look."
QUOTED = "".join(f"> {line}".rstrip() + "\n" for line in ASKED.split("\n"))

ABOVE = {
    "mutt": "On Thu, Nov 26, 2026 at 12:00:05PM +0000, ada@hive wrote:\n",
    "Thunderbird": "On 26/11/2026 12:00, ada@hive wrote:\n",
    "Thunderbird, German": "Am 26.11.26 um 12:00 schrieb ada@hive:\n",
    "Thunderbird, French": "Le 26/11/2026 à 12:00, ada@hive a écrit\xa0:\n",
    "Gmail, wrapped": "On Thu, Nov 26, 2026 at 12:00 PM Ada of the hive, who checks it <ada@hive>\nwrote:\n\n",
    "Gmail, German, wrapped": "Am Do., 26. Nov. 2026 um 12:00 Uhr schrieb Ada <\nada@hive>:\n\n",
    "Gmail, French": "Le jeu. 26 nov. 2026 à 12:00, Ada <ada@hive> a écrit :\n\n",
    "Gmail, Japanese": "2026年11月26日(木) 12:00 Ada <ada@hive>:\n\n",
    "Apple Mail": "On 26. Nov 2026, at 12:00, ada@hive wrote:\n\n",
    "Apple Mail, German": "Am 26.11.2026 um 12:00 schrieb ada@hive:\n\n",
    "Horde": "Zitat von ada@hive:\n\n",
    "no word of who": "",
}

BELOW = {
    "Outlook": "-----Original Message-----\nFrom: ada@hive <ada@hive> \nSent: Thursday, November 26, 2026 12:00 PM\n"
    "To: human@hive\nSubject: Review: Build a boat\n\n",
    "Outlook, German": "-----Ursprüngliche Nachricht-----\nVon: Ada\nGesendet: Donnerstag, 26. November 2026 12:00\n"
    "An: human@hive\nBetreff: Review: Build a boat\n\n",
    "Outlook, French, no rule": "De : ada@hive <ada@hive>\nEnvoyé : jeudi 26 novembre 2026 12:00\nÀ : human@hive\n"
    "Objet : Review: Build a boat\n\n",
    "Outlook on a telephone": "Get Outlook for Android<https://aka.ms/x>\n________________________________\nFrom: Ada\n"
    "Sent: Thursday, November 26, 2026 12:00:05 PM\nTo: human@hive <human@hive>\nSubject: Review\n\n",
    "Exchange, bold": "*From:* ada@hive <ada@hive>\n*Sent:* Thursday, November 26, 2026 12:00 PM\n*To:* human@hive\n\n",
    "Yahoo": "    On Thursday, November 26, 2026 at 12:00:05 PM GMT+1, Ada <ada@hive> wrote:  \n \n ",
}

ANSWERS = ["approved", "Tar it, and paint it: twice.\n\n* red\n* white", "No: see http://x.org/?a=1 at 14:30."]


@pytest.mark.parametrize("said", ANSWERS)
@pytest.mark.parametrize("above", ABOVE.values(), ids=ABOVE)
def test_quoted_line_by_line_above_or_below(said: str, above: str) -> None:
    for signature in ("", "\n-- \nJo Doe\nTel: 030 1234", "\n--\nJo", "\n\nSent from my iPhone"):
        assert answer_text(f"{said}\n{signature}\n\n{above}{QUOTED}") == said
        assert answer_text(f"{above}{QUOTED}\n{said}\n{signature}\n") == said
        assert answer_text(f"{above}{QUOTED}\n{said}{signature}".replace("\n", "\r\n")) == said
    assert answer_text(f"{said}\n\n{above}{QUOTED}".replace("\n>", " \n>")) == said, "format=flowed"


@pytest.mark.parametrize("below", BELOW.values(), ids=BELOW)
@pytest.mark.parametrize("said", ANSWERS)
def test_the_letter_stands_below_as_it_was(said: str, below: str) -> None:
    assert answer_text(f"{said}\n\n{below}{ASKED}\n") == said
    assert answer_text(f"{said}\n\n-- \nJo Doe\n\n{below}{ASKED}\n") == said


def test_what_is_said_between_the_lines_of_a_quote_is_all_there() -> None:
    said = f"{ABOVE['Gmail, French']}> Is it painted?\nYes: twice.\n> And the keel?\n>\n> And the mast?\n\nTar them.\n"
    assert answer_text(said) == "Yes: twice.\n\nTar them."


@pytest.mark.parametrize(
    "said",
    [
        "> all of it is a quote",
        "Name: Jo\nPlace: Kiel\nDay: today",
        "Three things:\n1. tar\n2. paint -- twice --\n3. a keel",
        "Write to jo@x.org at 12:30, or this:\n\nthe other one",
        "---\n\nrejected: see below",
        "",
    ],
)
def test_what_only_looks_a_little_like_a_quoted_letter_stays(said: str) -> None:
    assert answer_text(said) == said


PAGES = {
    "Gmail": '<div dir="ltr">approved</div><br><div class="gmail_quote"><div dir="ltr" class="gmail_attr">On Thu, Nov 26, 2026'
    ' at 12:00\u202fPM Ada &lt;<a href="mailto:ada@hive">ada@hive</a>&gt; wrote:<br></div><blockquote class="gmail_quote"'
    ' style="margin:0"><div>Is it done?<br><br>Answer.</div></blockquote></div>',
    "Apple Mail": '<html><body style="x"><div>approved</div><div><br></div>-- <br><div>Jo</div><div><br><blockquote'
    ' type="cite"><div>On 26. Nov 2026, at 12:00, Ada &lt;ada@hive&gt; wrote:</div><br><div>Is it done?<blockquote>older'
    "</blockquote></div></blockquote></div></body></html>",
    "Thunderbird": '<p>approved<br></p><div class="moz-cite-prefix">Am 26.11.26 um 12:00 schrieb ada@hive:<br></div>'
    '<blockquote type="cite" cite="mid:x@hive"><pre class="moz-quote-pre">Is it done?</pre></blockquote>',
    "Outlook": '<div class="WordSection1"><p class="MsoNormal">approved<o:p></o:p></p><div style="border-top:solid"><p>'
    "<b>From:</b> ada@hive &lt;ada@hive&gt; <br><b>Sent:</b> Thursday, November 26, 2026 12:00 PM<br><b>To:</b> human@hive"
    "<br><b>Subject:</b> Review</p></div><p>Is it done?</p></div>",
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_reply_that_is_a_page_only(page: str) -> None:
    raw = f"From: human@hive\nSubject: Re\nContent-Type: text/html; charset=utf-8\n\n{page}".encode()
    assert answer_text(parse_message(raw, "hive").body) == "approved"


@pytest.mark.skipif(shutil.which("mutt") is None, reason="mutt is not installed")
@pytest.mark.parametrize(
    "editing", ['(echo approved; echo; cat "$1") > "$1.x"', 'sed "s/^-- $/approved\\n\\n&/" "$1" > "$1.x"']
)
def test_what_mutt_writes_as_a_reply(tmp_path: Path, mail: Mail, editing: str) -> None:
    mail.send("alice", "human", "Größe?", ASKED)
    (tmp_path / "edit").write_text(f'#!/bin/sh\n{editing}; mv "$1.x" "$1"\n')
    (tmp_path / "send").write_text(f"#!/bin/sh\ncat > {tmp_path}/sent\n")
    for name in ("edit", "send"):
        (tmp_path / name).chmod(0o755)
    settings = {
        "folder": '""', "charset": "utf-8", "record": '""', "from": "human@hive", "signature": f"{tmp_path}/signature",
        "editor": f"{tmp_path}/edit", "sendmail": f"{tmp_path}/send", "include": "yes", "sig_dashes": "yes",
        "fast_reply": "yes", "autoedit": "yes", "edit_headers": "no", "wait_key": "no", "text_flowed": "yes",
    }  # fmt: skip
    (tmp_path / "signature").write_text("Jo Doe\n")
    (tmp_path / "muttrc").write_text("".join(f"set {key}={value}\n" for key, value in settings.items()))
    master, slave = pty.openpty()  # without a terminal mutt only sends
    mutt = subprocess.Popen(
        ["mutt", "-F", tmp_path / "muttrc", "-f", tmp_path / "mailboxes/human", "-e", "push '<reply><send-message><exit>'"],
        env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm"}, stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    screen = b""
    try:
        while more := os.read(master, 65536):
            screen += more
    except OSError:  # EIO: mutt has ended
        pass
    os.close(master)
    mutt.wait(30)
    reply = parse_message((tmp_path / "sent").read_bytes(), "hive")
    assert ">Is it done?" in reply.body, screen
    assert answer_text(reply.body) == "approved"
