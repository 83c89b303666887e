"""Find damage inside a PDF that PDFium reads in silence: streams that break off, pages that the tree hides.

PDFium shows what it could decode and reports nothing. The file's bytes are looked through once: every packed stream but
pictures is unpacked and its checksum compared. Only where something is wrong does pypdf, which is slow, say which page
it belongs to."""

from __future__ import annotations

import base64
import io
import mmap
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_STREAM = re.compile(rb"stream\r?\n")
_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
_OTHERS = re.compile(
    rb"/(?:LZW|ASCIIHex|ASCII85|RunLength|CCITTFax|JBIG2|DCT|JPX)Decode|/Crypt|/Filter\s*(?:\d|\[\s*\])")
_PACKED = (b"x\x01", b"x^", b"x\x9c", b"x\xda", b"h\xde", b"H\x89")
_FLUSHED = b"\x00\x00\xff\xff"  # all was written, and the end of the packed data not marked: Acrobat does so
_END = re.compile(rb"endstream")
_SHOWS = re.compile(rb"[\])>]\s*T[jJ]\b")
_OFF = re.compile(rb"/OFF\s*(?:\[\s*\d|[\d/>])")
_NO_TEXT = re.compile(rb"/(?:EmbeddedFile|Params|Metadata|Alternate|FunctionType|ShadingType|Sound)(?![a-zA-Z])"
                      rb"|/N\s+[134](?!\d)")  # attachments, ICC profiles, what paints
_LENGTH = re.compile(rb"/Length\s+(\d+)(?!\s+\d+\s+R)")
_LONGEST_DICTIONARY = 4000
_MOST = 64 << 20  # bytes that one stream may unpack to
_MOST_IN_ALL = 1 << 30
_STEP = 1 << 20
_STRING = re.compile(rb"\((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*\)|<[0-9A-Fa-f\s]*>|<<|>>|/[^\s/<>\[\]()]*|%[^\r\n]*",
                     re.DOTALL)
_TOKEN = re.compile(rb"[^\s\[\]]+")
_NUMBER = re.compile(rb"[+-]?(?:\d++(?:\.\d*)?|\.\d+)\Z")
_OPERATORS = frozenset(
    b"b B b* B* BDC BI BMC BT BX c cm CS cs d d0 d1 Do DP EI EMC ET EX f F f* G g gs h i ID j J K k l m M MP n q Q re "
    b"RG rg ri s S SC sc SCN scn sh T* Tc Td TD Tf Tj TJ TL Tm Tr Ts Tw Tz v w W W* y ' \" true false null".split())


@dataclass(frozen=True)
class Damage:
    """texts: streams that write text onto a page; 0 where nobody looked. broken: pages (from 0) that
    hold a stream which breaks off. elsewhere: some stream is broken, and no page was seen to own it. repaired: the file
    with all of its pages, where the tree says fewer; None: there is nothing to repair. layers_off: the names of layers
    that are not shown."""

    texts: int = 0
    broken: tuple[int, ...] = ()
    elsewhere: bool = False
    repaired: bytes | None = None
    layers_off: frozenset[str] = frozenset()


def damage(path: Path, pages: int, password: str | None, encrypted: bool) -> Damage:
    """Return the damage of a file that PDFium opened with so many pages."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        broken, found, texts, layers = _look_through(data, encrypted)
    off = _layers_off(path, password) if layers else frozenset()
    if not broken and found <= pages:
        return Damage(texts, layers_off=off)
    try:
        return replace(_by_pypdf(path, pages, password, broken), texts=texts, layers_off=off)
    except MemoryError:
        raise
    except Exception:  # the library raises many kinds for a broken file
        return Damage(texts, elsewhere=True, layers_off=off)


def _look_through(data: mmap.mmap, encrypted: bool) -> tuple[bool, int, int, bool]:
    """Return whether a stream is broken that may hold text, how many pages (replaced ones too) and streams of text
    there are, and whether a layer may be off. An encrypted file's streams cannot be looked into from outside."""
    found, size, count, texts, broken = len(_PAGE.findall(data)), 0, 0, 0, False
    layers, ends = _OFF.search(data) is not None, len(_END.findall(data))
    if encrypted:
        return False, found, 0, layers
    for head, body in _streams(data):
        count += 1
        if b"/Filter" not in head:
            ends -= len(_END.findall(body))  # of a file inside this one
        if b"/Image" in head or size > _MOST_IN_ALL or (_NO_TEXT.search(head) and b"/ObjStm" not in head):
            continue
        plain, whole = _unpacked(head, body)
        size += len(plain)
        broken = broken or not whole
        if b"/ObjStm" in head:
            found += len(_PAGE.findall(plain))
            layers = layers or _OFF.search(plain) is not None
        elif b"/Filter" not in head and b"BT" in plain and not _sound(plain):
            broken = True
        texts += b"/Form" not in head and b"BT" in plain and _SHOWS.search(plain) is not None
    return broken or count != ends, found, texts, layers


def _layers_off(path: Path, password: str | None) -> frozenset[str]:
    """Return the names of layers that are off when the file is opened, and of no other layer."""
    import pypdf

    try:
        pdf = pypdf.PdfReader(str(path))
        if pdf.is_encrypted:
            pdf.decrypt(password or "")
        layers = _dictionary(pdf.root_object, "/OCProperties")
        usual = _dictionary(layers, "/D")
        marked = {entry.idnum for entry in usual.get("/OFF", [])}
        if usual.get("/BaseState") == "/OFF":
            marked = {entry.idnum for entry in layers["/OCGs"]} - {entry.idnum for entry in usual.get("/ON", [])}
        names: dict[bool, set[str]] = {True: set(), False: set()}
        for entry in layers["/OCGs"]:
            names[entry.idnum in marked].add(str(entry.get_object()["/Name"]))
        return frozenset(names[True] - names[False])
    except MemoryError:
        raise
    except Exception:  # the library raises many kinds for a broken file, whose layers are then all shown
        return frozenset()


def _by_pypdf(path: Path, pages: int, password: str | None, broken: bool) -> Damage:
    import pypdf

    pdf = pypdf.PdfReader(str(path))
    if pdf.is_encrypted:
        pdf.decrypt(password or "")
    hidden = len(pdf.pages) > pages
    own = tuple(number for number, page in enumerate(pdf.pages) if _page_broken(page)) if broken else ()
    if not hidden:
        return Damage(broken=own, elsewhere=broken and not own)
    writer = pypdf.PdfWriter()
    for page in pdf.pages:
        writer.add_page(page)
    out = io.BytesIO()
    writer.write(out)
    return Damage(broken=own, elsewhere=broken and not own, repaired=out.getvalue())


def _streams(data: mmap.mmap) -> Iterator[tuple[bytes, bytes]]:
    """Yield the dictionary and the bytes of each stream, by their keywords: a table of contents that lies hides
    none."""
    at = 0
    while found := _STREAM.search(data, at):
        at = found.end()
        if data[max(0, found.start() - 3) : found.start()] == b"end":
            continue
        start = data.rfind(b" obj", max(0, found.start() - _LONGEST_DICTIONARY), found.start())
        head = data[max(start, 0) : found.start()]
        length = _LENGTH.search(head)
        end = at + int(length[1]) if length else -1
        if not 0 <= end <= len(data) or b"endstream" not in data[end : end + 12]:
            end = data.find(b"endstream", at)
        if end < 0:
            end = len(data)
        yield head, data[at:end]
        at = end


def _unpacked(head: bytes, body: bytes) -> tuple[bytes, bool]:
    """Return a stream unpacked, and whether it is whole. Filters that are not text's are taken as whole."""
    if b"/Filter" not in head:
        return body, body[:2] not in _PACKED  # packed, but its dictionary does not say so any more
    if b"ASCII85Decode" in head:
        try:
            body = _ascii85(b"".join(body.split()).removesuffix(b"~>"))
        except (ValueError, struct.error):
            return b"", False
    if b"/FlateDecode" not in head and b"/Fl" not in head:
        return b"", _OTHERS.search(head) is not None
    if b"/DCTDecode" in head or b"/Crypt" in head:
        return b"", True
    unpacker, kept, size = zlib.decompressobj(), [], 0
    rest = body
    try:
        while rest and not unpacker.eof and size < _MOST:
            kept.append(unpacker.decompress(rest, _STEP))
            size += len(kept[-1])
            rest = unpacker.unconsumed_tail
            if not rest and not kept[-1]:
                break
    except zlib.error:
        return b"".join(kept), False
    return b"".join(kept), unpacker.eof or size >= _MOST or body.rstrip(b"\r\n").endswith(_FLUSHED)


def _ascii85(body: bytes) -> bytes:
    """Decode as base64.a85decode does, several times as fast. Raises ValueError or struct.error."""
    if b"z" in body or not body:
        return base64.a85decode(body)
    if min(body) < 33 or max(body) > 117:
        raise ValueError("not ASCII85")
    missing = -len(body) % 5
    whole = body + b"u" * missing
    zero = 33 * (85**4 + 85**3 + 85**2 + 85 + 1)
    fives = zip(*[iter(whole)] * 5, strict=True)
    words = [(((a * 85 + b) * 85 + c) * 85 + d) * 85 + e - zero for a, b, c, d, e in fives]
    return struct.pack(f">{len(words)}I", *words)[: len(words) * 4 - missing]


def _sound(content: bytes) -> bool:
    """Say whether a content stream has only operators that there are, and closes every one that it opens."""
    if b" ID" in content or b"\nID" in content:  # a picture's bytes stand in it
        return True
    bare = _STRING.sub(b" ", content)
    if b"(" in bare or b")" in bare or b"<" in bare or b">" in bare:
        return False
    tokens = _TOKEN.findall(bare)
    return tokens.count(b"BT") == tokens.count(b"ET") and all(
        token in _OPERATORS or _NUMBER.match(token) for token in tokens)


def _page_broken(page: Any) -> bool:
    try:
        resources = _dictionary(page, "/Resources")
        streams = [page.get("/Contents"), *_dictionary(resources, "/XObject").values()]
        for font in _dictionary(resources, "/Font").values():
            streams.append(font.get_object().get("/ToUnicode"))
        return any(map(_broken, streams)) or page.get("/Contents") is None
    except Exception:  # the library raises many kinds for a broken page
        return True


def _dictionary(owner: Any, key: str) -> Any:
    found = owner.get(key)
    return {} if found is None else found.get_object()


def _broken(entry: Any) -> bool:
    entry = entry.get_object() if entry is not None else None
    if isinstance(entry, list):
        return any(map(_broken, entry))
    if not hasattr(entry, "_data"):
        return entry is not None and not isinstance(entry, str)
    if entry.get("/Subtype") == "/Image":
        return False
    head = repr(entry.get("/Filter", "")).encode()
    plain, whole = _unpacked(b"/Filter" + head if len(head) > 2 else b"", entry._data)
    return not whole or (len(head) <= 2 and b"BT" in plain and not _sound(plain))
