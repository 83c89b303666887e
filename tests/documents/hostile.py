"""Malformed and hostile documents, made on the spot, each with the error or the text it must end in."""

from __future__ import annotations

import functools
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

OFFICE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="{}" media-type="application/oebps-package+xml"/></rootfiles></container>'
)


def pdf(objects: list[bytes], root: int = 1, xref: bool = True, trailer: bytes = b"") -> bytes:
    """A PDF file from the bodies of its objects 1, 2, 3..."""
    out = io.BytesIO()
    out.write(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    if xref:
        out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
        out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer\n<</Size %d/Root %d 0 R%s>>\n" % (len(objects) + 1, root, trailer))
    if xref:
        out.write(b"startxref\n%d\n%%%%EOF\n" % start)
    return out.getvalue()


def stream(data: bytes, extra: bytes = b"") -> bytes:
    return b"<</Length %d%s>>stream\n%s\nendstream" % (len(data), extra, data)


def text_pdf(text: bytes = b"The whale is a mammal.", xref: bool = True, trailer: bytes = b"",
             more: Sequence[bytes] = ()) -> bytes:
    content = stream(b"BT /F1 12 Tf 72 700 Td (%s) Tj ET" % text)
    return pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
            content,
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            *more,
        ],
        xref=xref,
        trailer=trailer,
    )


def bomb_pdf() -> bytes:
    """A page of 40 x 200 MB from a file of a few kilobytes: spaces packed twice, the same stream again and again."""
    data = zlib.compress(zlib.compress(b"BT /F1 12 Tf (A" + b"A" * 200_000_000 + b") Tj ET", 1), 9)
    contents = b" ".join([b"4 0 R"] * 40)
    return pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents[%s]/Resources<</Font<</F1 5 0 R>>>>>>"
            % contents,
            stream(data, b"/Filter[/FlateDecode/FlateDecode]"),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        ]
    )


def scanned_pdf(pages: int, with_text: int = 0) -> bytes:
    """Pages that are one picture each; the last ``with_text`` pages have text."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b""]
    objects.append(
        stream(b"\x80" * 64, b"/Type/XObject/Subtype/Image/Width 8/Height 8/ColorSpace/DeviceGray/BitsPerComponent 8")
    )
    objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    kids = []
    for number in range(pages):
        show = b"q 600 0 0 780 0 0 cm /I Do Q"
        if number >= pages - with_text:
            show = b"BT /F1 12 Tf 72 700 Td (Page %d speaks of whales and of nothing else.) Tj ET" % number
        objects.append(stream(show))
        resources = b"/Resources<</XObject<</I 3 0 R>>/Font<</F1 4 0 R>>>>"
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R%s>>" % (len(objects), resources)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(kids), pages)
    return pdf(objects)


def encrypted_pdf(user: str, owner: str) -> bytes:
    import pypdf

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(text_pdf()))
    writer.encrypt(user, owner, algorithm="AES-256")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def zipped(parts: dict[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return out.getvalue()


def docx(body: str, prologue: str = "", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    document = f'{prologue}<w:document xmlns:w="{OFFICE}"><w:body>{body}</w:body></w:document>'
    return zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": document}, method)


def paragraph(text: str, before: str = "") -> str:
    return f"<w:p>{before}<w:r><w:t>{text}</w:t></w:r></w:p>"


def epub(chapters: dict[str, str], extra: dict[str, str] | None = None, package: str = "OEBPS/book.opf",
         metadata: str = "") -> bytes:
    items = "".join(
        f'<item id="c{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(chapters)
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>Whales</dc:title>{metadata}</metadata><manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    parts: dict[str, bytes | str] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER.format(package),
    }
    parts[package] = opf
    parts |= {f"OEBPS/{name}": text for name, text in chapters.items()}
    return zipped(parts | (extra or {}))


def lying_zip() -> bytes:
    """A directory that says 10 bytes for a part of 50 MB."""
    data = bytearray(zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": b"A" * 50_000_000}))
    real = struct.pack("<I", 50_000_000)
    return bytes(data.replace(real, struct.pack("<I", 10)))


def crowded_zip(parts: int) -> bytes:
    """A zip file that is all directory: so many parts, each of 47 bytes."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 3, 20, 0, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    body = b"PK\x03\x04" + bytes(26)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, parts & 0xFFFF, parts & 0xFFFF, parts * len(entry), len(body), 0)
    return body + entry * parts + end


def page_pdf(*, catalog: bytes = b"", box: bytes = b"0 0 612 792", content: bytes | None = None) -> bytes:
    """A PDF of one page, with one thing in it that no decent writer would put there."""
    return pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R%s>>" % catalog,
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[%s]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>" % box,
            content or stream(b"BT /F1 12 Tf 72 700 Td (The whale is a mammal.) Tj ET"),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        ]
    )


def deep_pages_pdf(depth: int) -> bytes:
    """A page at the end of ``depth`` nodes of a page tree that never branches."""
    nodes = [b"<</Type/Pages/Kids[%d 0 R]/Count 1/Parent %d 0 R>>" % (n + 3, n + 1) for n in range(depth)]
    page = b"<</Type/Page/Parent %d 0 R/MediaBox[0 0 612 792]/Contents %d 0 R>>" % (depth + 1, depth + 3)
    return pdf([b"<</Type/Catalog/Pages 2 0 R>>", *nodes, page, stream(b"BT (The whale) Tj ET")])


def long_spine_epub(times: int) -> bytes:
    """A book that says it is the same chapter again and again."""
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata/><manifest><item id="c" href="c.xhtml" '
        'media-type="application/xhtml+xml"/></manifest><spine>' + '<itemref idref="c"/>' * times + "</spine></package>"
    )
    parts: dict[str, bytes | str] = {"mimetype": "application/epub+zip", "b.opf": opf, "c.xhtml": "<p>The whale.</p>"}
    return zipped({"META-INF/container.xml": CONTAINER.format("b.opf")} | parts, zipfile.ZIP_STORED)


def flagged_encrypted(archive: bytes) -> bytes:
    """The same zip file with the flag on every part that says it is encrypted."""
    data = bytearray(archive)
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        place = data.find(mark)
        while place >= 0:
            data[place + offset] |= 1
            place = data.find(mark, place + 4)
    return bytes(data)


@functools.cache
def all_hostile() -> dict[str, tuple[bytes | Callable[[], bytes], str]]:
    """name -> (content, or what makes it where that takes long; "SomeError", or text that must be read)."""
    whole = text_pdf()
    none = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[]/Count 0>>"]
    crowd = {"word/document.xml": "<a/>"} | {f"p/{n}": "" for n in range(6000)}
    lost = epub({"c.xhtml": "<p>The whale"}).replace(b"OEBPS/c.xhtml", b"OEBPS/d.xhtml")
    entities = '<!DOCTYPE x [<!ENTITY a "AAAAAAAAAA"><!ENTITY b "&a;&a;&a;&a;&a;">]>'
    xxe = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    drm = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<EncryptedData xmlns="http://www.w3.org/2001/04/xmlenc#">'
        '<EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/></EncryptedData></encryption>'
    )
    chapter = "<html><body><h1>One</h1><p>The whale is a mammal.</p></body></html>"
    external: dict[str, bytes | str] = {
        "[Content_Types].xml": "<Types/>",
        "word/document.xml": f'<w:document xmlns:w="{OFFICE}"><w:body>{paragraph("The whale is a mammal.")}</w:body>'
        "</w:document>",
    }
    links = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
        'Type="image" TargetMode="External" Target="http://evil.example/x.png"/></Relationships>'
    )
    loop = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 2>>",
        b"<</Type/Pages/Kids[2 0 R]/Parent 2 0 R/Count 2>>",
    ]
    many = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 2000000000>>",
        b"<</Type/Page/Parent 2 0 R>>",
    ]
    return {
        "truncated.pdf": (whole[:200], "DamagedDocumentError"),
        "no-xref.pdf": (text_pdf(xref=False), "The whale is a mammal."),
        "header-only.pdf": (b"%PDF-1.7\n", "DamagedDocumentError"),
        "encrypted.pdf": (encrypted_pdf("secret", "owner"), "EncryptedDocumentError"),
        "owner-only.pdf": (encrypted_pdf("", "owner"), "The whale is a mammal."),
        "page-loop.pdf": (pdf(loop), "DocumentError"),
        "two-billion-pages.pdf": (pdf(many), "DocumentError"),
        "no-pages.pdf": (pdf(none), "EmptyDocumentError"),
        "blank.pdf": (text_pdf(b" "), "EmptyDocumentError"),
        "bomb.pdf": (bomb_pdf, "DocumentTooLargeError"),
        "scanned.pdf": (scanned_pdf(3), "EmptyDocumentError"),
        "noise.pdf": (bytes(range(256)) * 64, "DamagedDocumentError"),
        "web-page.pdf": (b"<!DOCTYPE html><p>The whale is a mammal.", "The whale is a mammal."),
        "picture.txt": (b"\x89PNG\r\n\x1a\n" + bytes(100), "DamagedDocumentError"),
        "program.txt": (b"\x7fELF" + bytes(200), "UnknownFormatError"),
        "old.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "UnknownFormatError"),
        "archive.zip": (zipped({"a.txt": "x"}), "UnknownFormatError"),
        "zeros.txt": (bytes(5000), "UnknownFormatError"),
        "empty.docx": (b"", "EmptyDocumentError"),
        "cut.docx": (docx(paragraph("The whale"))[:-40], "DamagedDocumentError"),
        "xxe.docx": (docx(paragraph("&e;"), xxe), "DamagedDocumentError"),
        "laughs.docx": (docx(paragraph("&b;"), entities), "DamagedDocumentError"),
        "malformed.docx": (docx("<w:p><w:r>"), "DamagedDocumentError"),
        "deep.docx": (docx("<w:p>" * 5000 + "</w:p>" * 5000), "DocumentTooLargeError"),
        "bomb.docx": (lambda: zipped({"word/document.xml": bytes(100_000_000)}), "DocumentTooLargeError"),
        "liar.docx": (lying_zip, "DocumentError"),
        "crowd.docx": (zipped(crowd), "DocumentTooLargeError"),
        "nested.docx": (zipped({"word/document.xml": zipped({"x": bytes(1 << 20)})}), "DamagedDocumentError"),
        "no-words.docx": (docx("<w:p/>"), "EmptyDocumentError"),
        "traversal.epub": (epub({"c.xhtml": chapter}, {"../../evil.txt": "x"}), "DamagedDocumentError"),
        "outside.epub": (epub({"../../../etc/passwd": chapter}), "DamagedDocumentError"),
        "drm.epub": (epub({"c.xhtml": chapter}, {"META-INF/encryption.xml": drm}), "EncryptedDocumentError"),
        "lost-package.epub": (zipped({"META-INF/container.xml": CONTAINER.format("x.opf")}), "DamagedDocumentError"),
        "missing-chapter.epub": (lost, "DamagedDocumentError"),
        "utf16.txt": ("The whale is a mammal — naïve".encode("utf-16"), "The whale is a mammal — naïve"),
        "utf16-no-mark.txt": (("The whale is a mammal. " * 9).encode("utf-16-le"), "The whale is a mammal."),
        "latin.txt": ("Une baleine est un mammifère, naïve et sûre.".encode("cp1252"), "mammifère, naïve et sûre"),
        "broken-utf8.txt": (b"The whale is a mammal. " * 200 + b"\xff\xfe" + b" End.", "The whale is a mammal."),
        "controls.txt": (b"The \x07whale\x00 is\x1b a mammal." + b"x" * 200, "DocumentError"),
        "bells.txt": (b"The whale is\x07 a mammal.\x0c" + b"And so is the seal. " * 9, "The whale is a mammal."),
        "bidi.txt": ("The \u202ewhale\u200b is a mammal.\U000e0041".encode(), "The whale is a mammal."),
        "one-line.txt": (lambda: b"The whale is a mammal. " * 900_000, "The whale is a mammal."),
        "nested.html": (lambda: b"<div>" * 250_000 + b"The whale is a mammal.", "The whale is a mammal."),
        "scripts.html": (
            b"<script>alert('evil')</script><p hidden>evil</p><div style='display:none'>evil<div>evil</div></div>"
            b"<p>The whale</p><img src=x onerror=evil()><style>evil</style>",
            "The whale",
        ),
        "unclosed.html": (b"<!" + b"<a href='" * 3000 + b"<p>The whale is a mammal.", "The whale is a mammal."),
        "fake.md": (whole, "The whale is a mammal."),
        "xref-loop.pdf": (
            text_pdf(trailer=b"/Prev %d" % int(whole[whole.rindex(b"startxref") :].split()[1])),
            "The whale is a mammal.",
        ),
        "javascript.pdf": (
            page_pdf(catalog=b"/OpenAction<</S/JavaScript/JS(app.launchURL\\('http://evil.example'\\))>>"),
            "The whale is a mammal.",
        ),
        "negative-length.pdf": (
            page_pdf(content=b"<</Length -5>>stream\nBT /F1 12 Tf (The whale is a mammal.) Tj ET\nendstream"),
            "The whale is a mammal.",
        ),
        "endless-paper.pdf": (page_pdf(box=b"0 0 1e30 -1e30"), "The whale is a mammal."),
        "self-contents.pdf": (page_pdf(content=b"[4 0 R 4 0 R]"), "EmptyDocumentError"),
        "deep-pages.pdf": (deep_pages_pdf(3000), "DocumentTooLargeError"),
        "late-header.pdf": (b"\x00junk " * 100 + whole, "The whale is a mammal."),
        "polyglot.pdf": (whole + zipped({"word/document.xml": "evil"}), "The whale is a mammal."),
        "external.docx": (
            zipped(external | {"word/_rels/document.xml.rels": links}), "The whale is a mammal."
        ),
        "macro.docx": (
            zipped(external | {"word/vbaProject.bin": b"\xd0\xcf\x11\xe0evil" * 99}), "The whale is a mammal."
        ),
        "attributes.docx": (
            lambda: docx("<w:p " + " ".join(f'a{n}="x"' for n in range(200_000)) + "/>" + paragraph("The whale")),
            "The whale",
        ),
        "locked.docx": (flagged_encrypted(zipped(external)), "EncryptedDocumentError"),
        "unknown-encoding.docx": (
            docx(paragraph("The whale"), '<?xml version="1.0" encoding="x-nope"?>'), "DamagedDocumentError"
        ),
        "entities.epub": (
            zipped({"META-INF/container.xml": xxe + CONTAINER.format("x.opf"), "mimetype": "application/epub+zip"}),
            "DamagedDocumentError",
        ),
        "endless-spine.epub": (lambda: long_spine_epub(300_000), "DocumentError"),
        "remote.epub": (
            epub({"c.xhtml": "<html><head><script src='http://evil.example/x.js'>evil</script></head><body><p>The "
                  "whale is a mammal.</p><img src='http://evil.example/i'/></body></html>"}), "The whale is a mammal."
        ),
        "zalgo.txt": (lambda: ("The whale" + "\u0301\u0323" * 200_000 + " end.").encode(), "The whal"),
        "tokens.md": (b"<|im_start|>system\nThe whale is a mammal. [INST] x [/INST]<|eot_id|>", "<|im_start|>system"),
        "data-uri.html": (
            lambda: b"<p>The whale</p><img src='data:image/png;base64," + b"A" * 3_000_000 + b"'><svg onload=evil()>",
            "The whale",
        ),
        "frames.html": (
            b"<p>The whale</p><iframe srcdoc='<p>evil</p>' src=http://evil.example></iframe><template><p>evil</p>"
            b"</template><noscript>evil</noscript><object data=http://evil.example>evil</object>"
            b"<meta http-equiv=refresh content='0;url=http://evil.example'>",
            "The whale",
        ),
        "spaced-heading.md": (b"# The whale" + b" " * 30_000 + b"is a mammal.", "is a mammal."),
        "spaced-rule.md": (b"--" + b" " * 200_000 + b"The whale is a mammal.", "The whale is a mammal."),
        "one-paragraph.txt": (lambda: (b"and the whale is a mammal " * 3 + b"\n") * 50_000, "whale is a mammal"),
        "one-paragraph.md": (lambda: b"The whale is a mammal.\n" * 150_000, "The whale is a mammal. The whale"),
        "page-breaks.docx": (
            lambda: docx("<w:p>" + "<w:tab/>" * 60_000 + "<w:lastRenderedPageBreak/>" * 60_000 + "</w:p>"
                         + paragraph("The whale is a mammal."), method=zipfile.ZIP_STORED),
            "The whale is a mammal.",
        ),
        "form-feeds.txt": (lambda: b"The whale is a mammal." + b"\x0c" * 1_000_000, "The whale is a mammal."),
        "references.html": (b"<p>The whale</p>" + b"&nosuch;&#99999999999;&#xFFFFFFFFFF;&#0;" * 9000, "The whale"),
    }  # fmt: skip


def write_all(folder: Path) -> None:
    for name, (content, _) in all_hostile().items():
        (folder / name).write_bytes(content() if callable(content) else content)
