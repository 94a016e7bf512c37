"""Mail: every mailbox a Maildir, every message RFC 5322, each taken in once."""

from __future__ import annotations

from hivemind.mail.intake import Intake, count_waiting
from hivemind.mail.mail import Mail
from hivemind.mail.message import Attachment, Message, MessageSummary, SendReport

__all__ = ["Attachment", "Intake", "Mail", "Message", "MessageSummary", "SendReport", "count_waiting"]
