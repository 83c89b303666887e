"""Read mail and saved web pages (.mht, .eml): the page inside, or else the plain text."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage, Message

from .encodings import declared_in, decode_text
from .html import html_text
from .plain_text import text_raw
from .source import Raw, Source

_HEADERS = ("From", "To", "Date", "Subject")


def opened(data: bytes) -> EmailMessage:
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


def body_of(message: EmailMessage, name: str) -> tuple[Message, str, str]:
    """Return the page inside a message, or else its plain text; what that decodes to, and a warning."""
    part = message.get_body(("html", "plain")) or message
    data = part.get_payload(decode=True)
    data = data if isinstance(data, bytes) else b""
    return part, *decode_text(data, name, part.get_content_charset() or declared_in(data))


def read_mail(source: Source) -> Raw:
    message = opened(source.path.read_bytes())
    title = str(message["subject"] or "")
    attached = [name for part in message.walk() if (name := part.get_filename()) and part.get_content_disposition()
                == "attachment"]
    warnings = [f"Attached files were not read: {', '.join(attached[:5])[:300]}."] if attached else []
    part, words, warning = body_of(message, source.name)
    headers = [f"{name}: {message[name]}" for name in _HEADERS if message[name]] if message["date"] else []
    if part.get_content_type() == "text/html":
        raw = html_text(words).raw("mail", "mail-1", title, warnings)
    else:
        raw = text_raw(words.replace("\r\n", "\n"), warnings)
        raw.kind, raw.reader, raw.title = "mail", "mail-1", title
    source.check_characters(sum(len(page.text) for page in raw.pages))
    raw.warnings += [warning] if warning else []
    if headers and raw.pages:
        raw.pages[0].text = "\n".join(headers) + "\n\n" + raw.pages[0].text
    return raw
