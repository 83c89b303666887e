"""Tables of separated values, and mail and saved pages."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from triforce_core.documents import Document, read_document


def read(path: Path, text: str) -> Document:
    path.write_bytes(text.encode())
    return read_document(path)


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_each_row_is_a_line_with_its_headings(tmp_path: Path, name: str, separator: str) -> None:
    rows = [f'"Person{separator} {number}"{separator}{number}{separator}{separator}"said ""hi""\nto all"'
            for number in range(200)]
    document = read(tmp_path / name, "\n".join([separator.join(("name", "age", "town", "note")), *rows]))
    lines = "\n".join(page.text for page in document.pages).split("\n")
    assert lines == [f'name: Person{separator} {number} | age: {number} | note: said "hi" to all'.replace("\t", "")
                     for number in range(200)]
    assert document.kind == "csv" and len(document.pages) > 1


def test_a_table_without_headings_keeps_its_places(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", "1,Aldo,\n2,,Rome\n").pages[0].text == "1 | Aldo |\n2 | | Rome"


def test_a_heading_of_a_million_columns_takes_no_time(tmp_path: Path) -> None:
    document = read(tmp_path / "a.csv", ",".join(f"c{number}" for number in range(1_000_000)) + "\n1" * 20_000)
    assert document.pages[0].text.startswith("c0: 1\nc0: 1\n")


LIGHTHOUSE = base64.b64encode("灯塔".encode("gbk")).decode()
HEADERS = "From: a@example.org\nSubject: The lamp\nMIME-Version: 1.0\n"
PAGE = ("Content-Type: text/html; charset=\"utf-8\"\nContent-Transfer-Encoding: quoted-printable\n\n"
        "<html><body><p>The keeper=E2=80=99s ledger is gre=\nen.</p></body></html>\n")


def test_a_saved_page_is_read(tmp_path: Path) -> None:
    document = read(tmp_path / "a.mht", HEADERS + 'Content-Type: multipart/related; boundary="b"\n\n--b\n'
                    + PAGE + "--b--\n")
    assert document.pages[0].text == "The keeper’s ledger is green." and document.title == "The lamp"


def test_mail_names_its_attachments(tmp_path: Path) -> None:
    document = read(tmp_path / "a.eml", "Date: Mon, 1 Jan 2024 10:00:00 +0000\n" + HEADERS
                    + 'Content-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/plain; charset=gb2312\n'
                    'Content-Transfer-Encoding: base64\n\n' + LIGHTHOUSE + '\n--b\nContent-Type: application/pdf\n'
                    'Content-Disposition: attachment; filename="bill.pdf"\nContent-Transfer-Encoding: base64\n\n'
                    "AAAA\n--b--\n")
    assert document.pages[0].text.endswith("\n\n灯塔")
    assert "Subject: The lamp" in document.pages[0].text and "bill.pdf" in document.warnings[0]
