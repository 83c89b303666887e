"""The page view's routes: what they give, and to whom they give nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from little_books import wait_for, write_book, write_pdf
from page_client import client, testclient

from triforce_core import read_document
from ui.app.services import Services
from ui.server.routes import own_routes


def add(services: Services, path: Path, seconds: float = 10) -> str:
    entry = services.library.add(path)
    services.extractor.extract(entry.id)
    wait_for(lambda: services.library.get(entry.id).state == "ready", seconds)
    return entry.id


def test_a_text_page_and_its_ranges(services: Services, tmp_path: Path) -> None:
    key = add(services, write_book(tmp_path, "a.txt"))
    answer = client(services).get(f"/pages/{key}/2/text", params={"spot": "2:4-10;2:1-3;1:0-9;2:50-999999"})
    text = services.library.document(key).pages[1].text
    assert answer.json() == {"page": 2, "title": "Page 2", "text": text, "ranges": [[1, 3], [4, 10], [50, len(text)]]}
    assert answer.headers["cache-control"] == "no-store"
    assert client(services).get(f"/pages/{key}/2/picture").status_code == 404


def test_a_pdf_page(services: Services, tmp_path: Path) -> None:
    key = add(services, write_pdf(tmp_path, "a.pdf"))
    picture = client(services).get(f"/pages/{key}/1/picture?width=90")
    assert picture.headers["content-type"] == "image/png" and picture.content.startswith(b"\x89PNG")
    assert picture.headers["cross-origin-resource-policy"] == "same-origin"
    assert picture.headers["x-content-type-options"] == "nosniff"
    page = client(services).get(f"/pages/{key}/1/text").json()
    assert page["ratio"] == pytest.approx(400 / 300) and page["marks"] == []
    assert any("counted 101 ships" in text for text, _ in page["pieces"])


def test_a_scan_is_shown_and_marked(services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quotation's words are found in the picture, also once the document was read from the disk again."""
    from PIL import Image, ImageDraw, ImageFont

    sheet = Image.new("L", (1000, 500), 250)
    ImageDraw.Draw(sheet).multiline_text((100, 100), "The keeper counted ships\nfrom the northern tower", 20,
                                         ImageFont.load_default(40), spacing=20)
    sheet.save(tmp_path / "page.png")
    monkeypatch.setattr(services.extractor, "_read", read_document)
    key = add(services, tmp_path / "page.png", 120)
    services.library._read.clear()
    text = services.library.document(key).pages[0].text
    assert text == "The keeper counted ships from the northern tower"
    get = client(services).get
    assert get(f"/pages/{key}/1/picture?width=90").content.startswith(b"\x89PNG")
    start = text.index("northern")
    page = get(f"/pages/{key}/1/text", params={"spot": f"1:{start}-{start + 8}"}).json()
    assert page["ratio"] == 0.5 and "The keeper counted ships" in [words for words, _ in page["pieces"]]
    ((left, top, width, height),) = page["marks"]
    assert 0.2 < left < 0.3 and 0.1 < width < 0.2 and 0.28 < top < 0.36 and 0.05 < height < 0.15


def test_search(services: Services, tmp_path: Path) -> None:
    key = add(services, write_book(tmp_path, "a.txt"))
    found = client(services).get(f"/pages/{key}/find", params={"words": "NESS 3\ncounted 301"}).json()
    assert found["total"] == 1 and found["hits"][0]["words"] == "Ness 3 counted 301" and found["hits"][0]["page"] == 3
    assert client(services).get(f"/pages/{key}/find?words=x").json() == {"total": 0, "hits": []}
    assert client(services).get(f"/pages/{key}/find").json()["total"] == 0


def test_what_is_not_there(services: Services, tmp_path: Path) -> None:
    key = add(services, write_book(tmp_path, "a.txt"))
    get = client(services).get
    for path in (f"/pages/{key}/7/text", f"/pages/{key}/0/text", f"/pages/{key}/0/picture", f"/pages/{'0' * 64}/1/text",
                 f"/pages/{key[:-1]}/1/text", "/pages/..%2F..%2Fetc/1/text", f"/pages/{key}/-1/text",
                 f"/pages/{key}/{'9' * 5000}/text", f"/pages/{key}/²/text", f"/pages/{key}/1/picture?width=²"):
        assert get(path).status_code == 404, path


def test_who_comes_by_another_name_gets_nothing(services: Services, tmp_path: Path) -> None:
    key = add(services, write_book(tmp_path, "a.txt"))
    for path in (f"/pages/{key}/1/text", f"/pages/{key}/1/picture", f"/pages/{key}/find?words=ness"):
        assert client(services).get(path, headers={"host": "evil.example"}).status_code == 400
        assert client(services).post(path).status_code == 405


def test_a_key_of_the_api_locks_no_page(services: Services, tmp_path: Path) -> None:
    """Where nobody logs in, the browser has nothing to show; where somebody does, the page's routes ask for it too."""
    from starlette.applications import Starlette

    from ui.server.guard import Access

    key = add(services, write_book(tmp_path, "a.txt"))

    def status(access: Access, path: str) -> int:
        app = Starlette(routes=own_routes(services, access))
        app.cookie_id, app.tokens = "x", {}
        return testclient.TestClient(app).get(path).status_code

    async def sleep(seconds: float) -> None:
        pass

    keys = Access(["k" * 20], sleep=sleep)
    assert status(keys, f"/pages/{key}/1/text") == 200 and status(keys, "/metrics") == 401
    assert status(Access(["k" * 20], {"ana": "correct horse"}, sleep), f"/pages/{key}/1/text") == 401
