"""Text in any encoding: by its mark, by what it declares, as UTF-8, as UTF-16, by a guess, or by asking."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from tests.documents import hostile
from triforce_core.documents import read_document
from triforce_core.documents.readers.encodings import codec_of, decode_text
from triforce_core.errors import UnclearEncodingError, UnknownFormatError

POLISH = ("Rozdział pierwszy. Czwartego marca była burza. Obie łodzie nie wróciły do portu. Latarnik, starzec mający "
          "siedemdziesiąt dwa lata, palił ogień przez całą noc, żeby rybacy znaleźli drogę, lecz nikt nie przyszedł.")
RUSSIAN = ("Четвёртого марта была буря. Обе лодки не вернулись. Смотритель маяка, старик семидесяти двух лет, всю ночь "
           "жёг огонь, чтобы рыбаки нашли дорогу, но никто не пришёл.")
GREEK = "Ο φύλακας του φάρου ήταν ένας γέρος εβδομήντα δύο ετών, και όλη τη νύχτα κρατούσε τη φωτιά αναμμένη."
CHINESE = "三月四日，暴风雨。两艘船都没有回来。守灯塔的老人整夜点着火。村里的人说，他已经七十二岁了。"
JAPANESE = "三月四日、嵐。船は二隻とも戻らなかった。灯台守の老人は夜通し火を焚いた。村の人は彼が七十二歳だと言う。"
KOREAN = "삼월 사일, 폭풍이 불었다. 배 두 척은 돌아오지 않았다. 등대지기 노인은 밤새 불을 피웠다."
ENCODED = [(POLISH, "cp1250"), (POLISH, "iso8859-2"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r"), (RUSSIAN, "cp866"),
           (GREEK, "cp1253"), (CHINESE, "gbk"), (JAPANESE, "cp932"), (JAPANESE, "euc_jp"), (JAPANESE, "iso2022_jp"),
           (KOREAN, "cp949")]


def words(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return " ".join(" ".join(page.text for page in read_document(path).pages).split())


@pytest.mark.parametrize(("text", "encoding"), ENCODED)
@pytest.mark.parametrize("ending", ["txt", "md"])
def test_older_encodings_are_recognised(tmp_path: Path, text: str, encoding: str, ending: str) -> None:
    assert words(tmp_path / f"a.{ending}", text.encode(encoding)) == text


@pytest.mark.parametrize("text", [POLISH, RUSSIAN, GREEK, CHINESE, KOREAN])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_text_needs_no_mark(tmp_path: Path, text: str, encoding: str) -> None:
    assert words(tmp_path / "a.txt", (text + "\n").encode(encoding)) == text


@pytest.mark.parametrize("data", [bytes(range(256)) * 9, b"\0\1\0\2" * 500, b"The whale\0 is a mammal." * 20])
def test_other_data_with_zeros_are_no_text(data: bytes) -> None:
    with pytest.raises(UnknownFormatError):
        decode_text(data, "a.bin")


@pytest.mark.parametrize(("label", "codec"), [
    ("GB2312", "gb18030"), ("iso-8859-1", "cp1252"), ("latin1", "cp1252"), ("us-ascii", "cp1252"),
    ("Shift_JIS", "cp932"), ("x-sjis", "cp932"), ("Windows-31J", "cp932"), ("ks_c_5601-1987", "cp949"),
    ("x-cp1251", "cp1251"), ("iso88592", "iso8859-2"), ("iso-8859-9", "cp1254"),
    ("utf8", "utf-8"), ("rot13", ""), ("unicode_escape", ""),
    ("zip", ""), ("x-nope", "")])
def test_labels_mean_what_they_do_on_the_web(label: str, codec: str) -> None:
    assert codec_of(label) == codec


@pytest.mark.parametrize(("label", "text", "encoding"), [
    ("gb2312", "朱镕基" + CHINESE, "gbk"), ("iso-8859-1", "“Smart” – Müller’s €5", "cp1252"),
    ("Shift_JIS", "①髙" + JAPANESE, "cp932"), ("windows-1251", RUSSIAN, "cp1251"), ("windows-1251", RUSSIAN, "utf-8"),
    ("utf-8", RUSSIAN, "cp1251"), ("utf-16", RUSSIAN, "utf-8"), ("x-nope", RUSSIAN, "koi8-r")])
@pytest.mark.parametrize("head", [
    '<html><head><meta charset="{}"></head><body>', "<?xml version='1.0' encoding='{}'?><html><body>"])
def test_a_page_is_read_as_it_declares_but_utf_8_wins(
    tmp_path: Path, head: str, label: str, text: str, encoding: str
) -> None:
    page = f"{head.format(label)}<p>{text}</p></body></html>"
    assert words(tmp_path / "a.html", page.encode(encoding)) == text


@pytest.mark.parametrize(("label", "text", "encoding"), [
    ("windows-1251", RUSSIAN, "cp1251"), ("gb2312", CHINESE, "gbk"), ("Shift_JIS", JAPANESE, "cp932")])
def test_every_part_of_a_book_is_read_as_it_declares(tmp_path: Path, label: str, text: str, encoding: str) -> None:
    declaration = f'<?xml version="1.0" encoding="{label}"?>'
    chapter = f"{declaration}<html><body><p>{text}</p></body></html>".encode(encoding)
    with zipfile.ZipFile(io.BytesIO(hostile.epub({"c.xhtml": ""}))) as book:
        parts: dict[str, bytes | str] = {name: book.read(name) for name in book.namelist()}
        package = declaration + book.read("OEBPS/book.opf").decode().replace("Whales", text[:9])
    parts |= {"OEBPS/c.xhtml": chapter, "OEBPS/book.opf": package.encode(encoding)}
    book_data = hostile.zipped(parts)
    path = tmp_path / "a.epub"
    path.write_bytes(book_data)
    document = read_document(path)
    assert text in document.pages[0].text and document.title == text[:9]


def test_few_broken_bytes_leave_the_rest_of_utf_8(tmp_path: Path) -> None:
    data = RUSSIAN.encode()[:-1] + b"\xd0 " + b"The end."
    assert words(tmp_path / "a.txt", data) == RUSSIAN[:-1] + "\ufffd The end."


UNCLEAR = "Vor der Brücke steht ein Müller.".encode("mac-roman")


def test_an_unclear_text_is_asked_about_and_read_as_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(UNCLEAR)
    with pytest.raises(UnclearEncodingError) as caught:
        read_document(path)
    readings = {codec: line for codec, _, line in caught.value.readings}
    assert len(readings) == 3 and "Brücke" in readings["mac-roman"] and "mac-roman" in str(caught.value)
    assert "Brücke" in read_document(path, encoding="macintosh").pages[0].text
    with pytest.raises(UnknownFormatError, match="no encoding 'nope'"):
        read_document(path, encoding="nope")
