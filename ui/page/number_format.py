"""Numbers in the form a person reads them. Pure."""

from __future__ import annotations

from . import number_format as fmt


def pages(number: int) -> str:
    return "1 page" if number == 1 else f"{fmt.count(number)} pages"


CONTEXT_TOKENS = "{tokens} tokens"
ABOUT = "about {tokens}"
CONTEXT_FITS = "{tokens} tokens, {fit} fit into memory"


def count(number: int) -> str:
    """31204 -> '31,204'."""
    return f"{number:,}"


def rate(value: float) -> str:
    """Three significant digits where they mean something: '7.4', '52', '1,240'."""
    return f"{value:.1f}" if value < 20 else f"{value:,.0f}"


def seconds(value: float) -> str:
    """0.8 -> '0.8 s', 41.3 -> '41 s', 130 -> '2 min 10 s'."""
    if value < 10:
        return f"{value:.1f} s"
    if value < 99.5:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def milliseconds(value: float) -> str:
    """Of seconds: 0.0032 -> '3.2', 0.05 -> '50'."""
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


def context(most: int, fits: int | None = None) -> str:
    """How long a context may be: what the model can, and what of it fits into memory."""
    if not most:
        return "not reported by the server"
    shape = CONTEXT_TOKENS if fits is None or fits >= most else CONTEXT_FITS
    return shape.format(tokens=count(most), fit=count(fits or most))


def tokens(number: int, estimated: bool) -> str:
    return ABOUT.format(tokens=count(number)) if estimated else count(number)
