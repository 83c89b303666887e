"""Numbers, pages and waits in the words that a person reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triforce_core import Document, metrics

from ..app.extraction import Extraction
from ..app.jobs import Ahead

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese",
             "nl": "Dutch", "pl": "Polish", "sv": "Swedish", "da": "Danish", "no": "Norwegian", "nb": "Norwegian",
             "nn": "Norwegian", "fi": "Finnish", "cs": "Czech", "hu": "Hungarian", "ro": "Romanian", "tr": "Turkish",
             "el": "Greek", "ru": "Russian", "uk": "Ukrainian", "la": "Latin", "ar": "Arabic", "he": "Hebrew",
             "hi": "Hindi", "zh": "Chinese", "ja": "Japanese", "ko": "Korean", "af": "Afrikaans", "az": "Azerbaijani",
             "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cy": "Welsh", "eo": "Esperanto",
             "et": "Estonian", "eu": "Basque", "fa": "Persian", "ga": "Irish", "gd": "Scottish Gaelic",
             "gl": "Galician", "gu": "Gujarati", "hr": "Croatian", "hy": "Armenian", "id": "Indonesian",
             "is": "Icelandic", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ky": "Kyrgyz",
             "lb": "Luxembourgish", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam",
             "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese", "ne": "Nepali",
             "pa": "Punjabi", "ps": "Pashto", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian",
             "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "tg": "Tajik", "th": "Thai", "tl": "Tagalog",
             "ug": "Uyghur", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese"}
WAITS = {  # what the engine does -> what waits for that
    "prefill": "Waiting until “{title}” is read", "answer": "Waiting for an answer about “{title}”",
    "race": "Waiting for a race about “{title}”", "pause": "Pausing the reading of “{title}”",
    "engine": "Waiting for the engine to start",
}
LEAST_LEFT = 0.05  # seconds: less would be shown as 0.0


def count(number: int) -> str:
    """31204 -> '31,204'."""
    return f"{number:,}"


def rate(value: float) -> str:
    """7.42 -> '7.4', 52.3 -> '52', 1240 -> '1,240'."""
    return f"{value:.1f}" if value < 20 else f"{value:,.0f}"


def seconds(value: float) -> str:
    """0.8 -> '0.8 s', 41.3 -> '41 s', 130 -> '2 min 10 s'."""
    if value < 99.5:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def left(value: float) -> str:
    return f"about {seconds(value)} left"


def so_far(value: float) -> str:
    """Return how long something goes on; "" in its first second."""
    return f"{value:.0f} s so far" if 1 <= value < 99.5 else f"{seconds(value)} so far" if value >= 1 else ""


def milliseconds(value: float) -> str:
    """Seconds: 0.0032 -> '3.2', 0.05 -> '50'."""
    return f"{value * 1e3:.1f}" if value < 0.01 else f"{value * 1e3:.0f}"


def size(value: float) -> str:
    """Bytes: '812 KB', '1.4 MB', '2.1 GB'."""
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit in ("B", "KB") or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def memory(value: float) -> str:
    """Bytes as memory is counted: '812 MiB', '24.0 GiB'."""
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def percent(part: float, whole: float) -> str:
    """'82 %', or an en dash where nothing was tested."""
    return f"{100 * part / whole:.0f} %" if whole else "–"


def tokens(number: int, estimated: bool) -> str:
    return f"about {count(number)}" if estimated else count(number)


def context(most: int, fits: int | None = None) -> str:
    """Return how long a context may be: what the model can, and what of it fits into memory."""
    if not most:
        return "not reported by the server"
    return f"{count(most)} tokens" + (f", {count(fits)} fit into memory" if fits and fits < most else "")


def pages(number: int) -> str:
    return "1 page" if number == 1 else f"{count(number)} pages"


def cited(places: Sequence[Mapping[str, Any]], pages: int) -> str:
    """Return on which pages places stand: 'p. 29–30'. pages: of the document."""
    return metrics.cited([(place["label"], place["page"]) for place in places], pages)


def cited_page(document: Document, page: int, word: str = "p. ") -> str:
    """Return what a page is called, such as 'p. iv (4 of 60)'."""
    return metrics.cited([(document.pages[page - 1].label, page)], len(document.pages), word)


def page_title(document: Document, page: int) -> str:
    """Return 'Page iv (4 of 60)', or 'Moby Dick, page 85 (385 of 900)'."""
    return (cited_page(document, page, "page ") if metrics.BETWEEN in document.pages[page - 1].label
            else cited_page(document, page, "Page "))


def wait_line(ahead: Ahead | None) -> str:
    """Return what a question or a document waits for; "" where it waits for nothing."""
    if ahead is None:
        return ""
    line = WAITS[ahead.doing].format(title=ahead.title)
    return _with_rest(f"{line}; {ahead.more} more in line before this" if ahead.more else line, ahead.seconds)


def text_line(extraction: Extraction) -> str:
    """Return how far the text is that a question waits for."""
    if not extraction.pages_total:
        return "Waiting for the text to be extracted"
    return _with_rest(f"Waiting for the text: page {count(extraction.pages_done)} of {count(extraction.pages_total)} "
                      "extracted", extraction.seconds_left)


def _with_rest(line: str, seconds: float | None) -> str:
    return line if seconds is None or seconds < LEAST_LEFT else f"{line} · {left(seconds)}"
