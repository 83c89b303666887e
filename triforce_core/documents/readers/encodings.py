"""Turn bytes into text: by byte order mark, UTF-8, what the file declares, UTF-16 without a mark, or a guess.

A declaration is read as browsers read it: by the web's table of labels, in which gb2312 is GBK, iso-8859-1 is
windows-1252 and Shift_JIS is windows-31j."""

from __future__ import annotations

import codecs
import re
import unicodedata

from ...errors import UnclearEncodingError, UnknownFormatError
from .source import FORMATS, Source

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_KNOWN = {  # Python's codec -> its name for people
    "utf-8": "UTF-8", "utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE", "cp1252": "Western, Windows-1252",
    "iso8859-15": "Western, ISO-8859-15", "cp850": "Western, DOS 850", "cp437": "Western, DOS 437",
    "mac-roman": "Western, Macintosh", "cp1250": "Central European, Windows-1250",
    "iso8859-2": "Central European, ISO-8859-2", "cp852": "Central European, DOS 852",
    "mac-latin2": "Central European, Macintosh", "cp1251": "Cyrillic, Windows-1251", "koi8-r": "Cyrillic, KOI8-R",
    "koi8-u": "Cyrillic, KOI8-U", "cp866": "Cyrillic, DOS 866", "iso8859-5": "Cyrillic, ISO-8859-5",
    "mac-cyrillic": "Cyrillic, Macintosh", "cp1253": "Greek, Windows-1253", "iso8859-7": "Greek, ISO-8859-7",
    "cp737": "Greek, DOS 737", "cp1254": "Turkish, Windows-1254", "cp1255": "Hebrew, Windows-1255",
    "iso8859-8": "Hebrew, ISO-8859-8", "cp862": "Hebrew, DOS 862", "cp1256": "Arabic, Windows-1256",
    "iso8859-6": "Arabic, ISO-8859-6", "cp1257": "Baltic, Windows-1257", "iso8859-4": "Baltic, ISO-8859-4",
    "iso8859-13": "Baltic, ISO-8859-13", "cp775": "Baltic, DOS 775", "iso8859-3": "South European, ISO-8859-3",
    "iso8859-10": "Nordic, ISO-8859-10", "iso8859-14": "Celtic, ISO-8859-14",
    "iso8859-16": "Central European, ISO-8859-16", "cp1258": "Vietnamese, Windows-1258", "cp874": "Thai, Windows-874",
    "cp932": "Japanese, Shift_JIS", "euc_jp": "Japanese, EUC-JP", "iso2022_jp_ext": "Japanese, ISO-2022-JP",
    "cp949": "Korean, Windows-949", "gb18030": "Chinese, GB18030", "big5hkscs": "Chinese, Big5",
}  # fmt: skip
_WIDER = {  # codecs of a label -> the one that is read in its place, as on the web
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "hz": "gb18030", "big5": "big5hkscs", "shift_jis": "cp932",
    "shift_jis_2004": "cp932", "shift_jisx0213": "cp932", "euc_kr": "cp949", "johab": "cp949",
    "euc_jis_2004": "euc_jp", "euc_jisx0213": "euc_jp", "iso2022_jp": "iso2022_jp_ext",
    "iso2022_jp_2": "iso2022_jp_ext", "utf-16": "utf-16-le", "utf-8-sig": "utf-8",
}  # fmt: skip
_LABELS = {  # of the web's table, those that Python has under no name of its own
    "x-sjis": "cp932", "windows-31j": "cp932", "x-euc-jp": "euc_jp", "x-gbk": "gb18030", "gb_2312": "gb18030",
    "gb_2312-80": "gb18030", "csgb2312": "gb18030", "cn-big5": "big5hkscs", "x-x-big5": "big5hkscs",
    "windows-949": "cp949", "ks_c_5601-1989": "cp949", "dos-874": "cp874", "windows-874": "cp874", "koi": "koi8-r",
    "koi8": "koi8-r", "koi8-ru": "koi8-u", "x-mac-roman": "mac-roman", "x-mac-cyrillic": "mac-cyrillic",
    "x-mac-ukrainian": "mac-cyrillic", "visual": "iso8859-8", "logical": "iso8859-8", "iso-8859-8-i": "iso8859-8",
    "x-unicode20utf8": "utf-8", "unicode-1-1-utf-8": "utf-8", "unicode": "utf-16-le", "ucs-2": "utf-16-le",
    "iso-8859-8-e": "iso8859-8", "iso-8859-6-e": "iso8859-6", "iso-8859-6-i": "iso8859-6", "sun_eu_greek": "iso8859-7",
    "csisolatin9": "iso8859-15", "mac": "mac-roman", "csmacintosh": "mac-roman", "cseucpkdfmtjapanese": "euc_jp",
    "cseuckr": "cp949", "csksc56011987": "cp949", "iso-ir-149": "cp949", "ksc_5601": "cp949",
    "iso-10646-ucs-2": "utf-16-le", "csunicode": "utf-16-le", "unicodefffe": "utf-16-be", "unicodefeff": "utf-16-le",
    **{f"x-cp{page}": f"cp{page}" for page in range(1250, 1259)},
    **{f"iso8859{part}": f"iso8859-{part}" for part in range(1, 16) if part != 12},
}  # fmt: skip
_DETECTED = sorted({"iso8859-1", "iso8859-9", "ascii", "euc_kr", "euc_jis_2004", "tis-620", *_KNOWN} - {
    "utf-8", "utf-16-le", "utf-16-be", "euc_jp", "iso2022_jp_ext"})  # as the detector calls them
_HEAD = 8192  # bytes that show whether a file is UTF-16
_SAMPLE = 1 << 16  # bytes of lines beyond ASCII that the detector sees
_CLOSE = 0.97  # of the best reading's likelihood: another one that likely is as good
_COMMON = ("cp1252", "cp1251", "gb18030")  # readings that are offered where there are none
_UNLIKELY = 0.13  # of the best reading: nothing is like any language
_CHOICES = 3
_LONGEST = 160  # characters of a reading that are shown
_PRINTABLE = bytes((*b"\t\n\r", *range(32, 127)))
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*+(?:[\"']\s*+)?([\w:.-]{2,30})"
                      rb"|\A\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']\s*([\w:.-]{2,30})", re.IGNORECASE | re.ASCII)
_NO_LETTERS = re.compile("[\x7f-\x9f\ufffd]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def codec_of(label: str) -> str:
    """Return the codec that a label of an encoding means on the web, or "" for one that is not known."""
    label = label.strip().lower()
    try:
        name = _LABELS.get(label) or codecs.lookup(label).name
    except (LookupError, ValueError):
        return ""
    name = _WIDER.get(name, name)
    return name if name in _KNOWN else ""


def declared_in(data: bytes) -> str:
    """Return the label of the encoding that a page or an XML file gives itself; "" for none."""
    declared = _CHARSET.search(data[:4096])
    label = (declared[1] or declared[2]).decode() if declared else ""
    return "" if label.lower().startswith("utf-16") else label  # what can be read as ASCII is no UTF-16


def decode_file(source: Source, declared: str = "") -> tuple[str, list[str]]:
    """Return a file's text and warnings, by the encoding that the person chose if they did. Raises UnknownFormatError
    for binary data, UnclearEncodingError where several readings are as likely."""
    data = source.path.read_bytes()
    if source.encoding:
        codec = codec_of(source.encoding)
        if not codec:
            raise UnknownFormatError(f"There is no encoding {source.encoding[:60]!r} to read {source.name} in",
                                     allowed=", ".join(sorted(_KNOWN)), remedy="Choose one of these.")
        text, warning = data.decode(codec, "replace"), ""
    else:
        text, warning = decode_text(data, source.name, declared, ask=True)
    source.check_characters(len(text))
    return text, [warning] if warning else []


def decode_text(data: bytes, name: str, declared: str = "", ask: bool = False) -> tuple[str, str]:
    """Return the text and a warning ("" when the encoding is certain). declared: the label that the text gives itself;
    UTF-8 wins over a wrong one. ask: raise UnclearEncodingError rather than take the likeliest of several readings.
    Raises UnknownFormatError for binary data."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data.decode(encoding, "replace"), ""
    codec = codec_of(declared) if declared else ""
    if 0 in data[:_HEAD]:
        encoding = _wide(data[:_HEAD])
        if not encoding:
            raise _binary(name)
        return data.decode(encoding, "replace"), f"{name} has no byte order mark: read as {encoding.upper()}."
    if codec == "iso2022_jp_ext" or b"\x1b$" in data:  # seven bits: UTF-8 would take it for ASCII
        try:
            return data.decode("iso2022_jp_ext"), ""
        except UnicodeDecodeError:
            pass
    try:
        text, warning = data.decode("utf-8"), ""
    except UnicodeDecodeError:
        text, warning = _not_utf8(data, name, codec, ask)
    sample = text[:65536]
    if len(_CONTROLS.findall(sample)) * 10 > len(sample):
        raise _binary(name)
    return text, warning


def _not_utf8(data: bytes, name: str, codec: str, ask: bool) -> tuple[str, str]:
    if codec and codec != "utf-8" and not codec.startswith("utf-16"):
        text = data.decode(codec, "replace")
        broken = text.count("\ufffd")
        if broken * 20 < len(text):
            return text, _broken(name, broken)
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    if sum(len(run) for run in re.findall("[^\x00-\x7f\ufffd]+", text)) > broken:
        return text, _broken(name, broken)
    telling = [line for line in data[: 16 * _SAMPLE].split(b"\n") if not line.isascii()]
    readings, clear = _readings(b"\n".join(telling)[:_SAMPLE] or data[-_SAMPLE:])
    if ask and not clear:
        shown = [(codec, _KNOWN[codec], _shown(text)) for codec, text in readings]
        raise UnclearEncodingError(
            f"{name} does not say in which encoding it is, and several are likely",
            allowed="; ".join(f"{codec} ({sample[:40]})" for codec, _, sample in shown),
            remedy="Choose the encoding in which its text can be read.", readings=shown)
    best = readings[0][0]
    text = data.decode(best, "replace")
    said = f"{name} does not say in which encoding it is: read as {_KNOWN[best]}."
    return text, " ".join(filter(None, (said, _broken(name, text.count("\ufffd")))))


def _broken(name: str, count: int) -> str:
    return f"{name}: {count} broken bytes were replaced by \ufffd." if count else ""


def _readings(sample: bytes) -> tuple[list[tuple[str, str]], bool]:
    """Return up to three (codec, text), the likeliest first, and whether the first is clearly so."""
    import chardet  # here: most files are UTF-8

    found = chardet.detect_all(sample, ignore_threshold=True, compat_names=False, prefer_superset=False,
                               include_encodings=_DETECTED)
    readings: list[tuple[str, str]] = []
    rival = 0.0
    for label, confidence in [*((guess["encoding"] or "", guess["confidence"]) for guess in found),
                              *((codec, 0.0) for codec in _COMMON)]:
        codec = codec_of(label)
        text = sample.decode(codec, "replace") if codec else ""
        if text and (not readings or not _NO_LETTERS.search(text)) and all(text != other for _, other in readings):
            readings.append((codec, text))
            # Which of a script's own encodings it is, the detector knows by the few letters in which they differ.
            if _script(codec) != _script(readings[0][0]):
                rival = max(rival, confidence)
    best = found[0]["confidence"]
    western = readings[0][0] == "cp1252" and len(found) > 1  # where nothing fits, it is named alone
    return readings[:_CHOICES], western or (rival < best * _CLOSE and best > _UNLIKELY)


def _script(codec: str) -> str:
    return _KNOWN[codec].partition(",")[0]


def _shown(text: str) -> str:
    """Return the first words of a reading that are beyond ASCII, with what stands around them."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return next((line for line in lines if not line.isascii()), "")[:_LONGEST]


def _wide(head: bytes) -> str:
    """Return the encoding of a text of two or four bytes a character without a byte order mark; "" for other data."""
    head = head[: len(head) // 4 * 4]
    if len(head.translate(None, _PRINTABLE)) * 10 < len(head):  # a few zeros in a text of one byte a character
        return ""
    # The high bytes of a script are few, its low bytes many.
    big = len(set(head[::2])) < len(set(head[1::2]))
    order = "be" if big else "le"
    for encoding in (f"utf-32-{order}", f"utf-16-{order}"):
        text = head.decode(encoding, "replace")
        kinds = [unicodedata.category(letter) for letter in text if letter not in "\t\n\f\r"]
        odd = sum(kind[0] == "C" and kind != "Cf" for kind in kinds) + text.count("\ufffd")
        odd += sum(letter > "\uffff" for letter in text) if encoding.startswith("utf-32") else 0  # two short numbers
        if kinds and odd * 100 <= len(kinds) + 99 and sum(kind[0] == "L" for kind in kinds) * 3 > len(kinds):
            return encoding
    return ""


def _binary(name: str) -> UnknownFormatError:
    return UnknownFormatError(
        f"{name} is not text", allowed=FORMATS, remedy="Save or export the document in one of these formats.")
