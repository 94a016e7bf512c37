"""What a sender gets when there is nobody of that name: the reason and the message, from `postmaster`."""

from __future__ import annotations

from datetime import datetime

from hivemind.mail.compose import Draft
from hivemind.mail.header import one_line

__all__ = ["bounce"]

_QUOTED_CHARS = 4000


def bounce(original: Draft, recipient: str, reason: str, message_id: str, sender: str, date: datetime) -> Draft:
    """The message that tells `original.sender` of it, marked as automatic: nobody answers it, it never bounces."""
    text = original.body if len(original.body) <= _QUOTED_CHARS else original.body[:_QUOTED_CHARS] + "\n[…]"
    quoted = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
    subject = one_line(original.subject)
    return Draft(
        message_id=message_id,
        sender=sender,
        to=(original.sender,),
        subject=f"Undelivered: {subject}",
        body=f"Your message to {recipient} was not delivered: {reason}.\n\nSubject: {subject}\n\n{quoted}",
        date=date,
        in_reply_to=original.message_id,
        references=(*original.references, original.message_id),
        task=original.task,
        step=original.step,
        automatic=True,
        hops=original.hops + 1,
    )
