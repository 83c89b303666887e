"""Read mail and saved web pages (.mht, .eml): the page inside, or else the plain text."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

from .encodings import decode_text
from .html import decode_html, html_text
from .plain_text import text_raw
from .source import Raw, Source

_HEADERS = ("From", "To", "Date", "Subject")


def read_mail(source: Source) -> Raw:
    message = email.message_from_bytes(source.path.read_bytes(), policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    title = str(message["subject"] or "")
    attached = [name for part in message.walk() if (name := part.get_filename()) and part.get_content_disposition()
                == "attachment"]
    warnings = [f"Attached files were not read: {', '.join(attached[:5])[:300]}."] if attached else []
    part = message.get_body(("html", "plain")) or message
    data = part.get_payload(decode=True)
    data = data if isinstance(data, bytes) else b""
    declared = part.get_content_charset() or ""
    headers = [f"{name}: {message[name]}" for name in _HEADERS if message[name]] if message["date"] else []
    if part.get_content_type() == "text/html":
        markup, warning = decode_text(data, source.name, declared) if declared else decode_html(data, source.name)
        raw = html_text(markup).raw("mail", "mail-1", title, warnings)
    else:
        text, warning = decode_text(data, source.name, declared)
        raw = text_raw(text.replace("\r\n", "\n"), warnings)
        raw.kind, raw.reader, raw.title = "mail", "mail-1", title
    source.check_characters(sum(len(page.text) for page in raw.pages))
    raw.warnings += [warning] if warning else []
    if headers and raw.pages:
        raw.pages[0].text = "\n".join(headers) + "\n\n" + raw.pages[0].text
    return raw
