"""Mail: every mailbox is a Maildir, every message is RFC 5322, and an agent processes each message once."""

from __future__ import annotations

from hivemind.mail.intake import Intake, count_backlog
from hivemind.mail.mail import Mail
from hivemind.mail.message import Delivery, Message, MessageSummary
from hivemind.mime.content import Attachment

__all__ = ["Attachment", "Delivery", "Intake", "Mail", "Message", "MessageSummary", "count_backlog"]
