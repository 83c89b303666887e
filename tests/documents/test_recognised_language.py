"""Recognise the language of a text, or say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from triforce_core.documents import language
from triforce_core.documents.language import NAMED, language_of
from triforce_core.documents.read import read_document
from ui.page.formatting import LANGUAGES

TEXTS = {
    "en": "It was a dark night, and the wind came from the sea. The house on the hill was not to be seen, the lamp was "
          "out too, and how the people in the village fared, none of them knew as yet.",
    "de": "Es war eine dunkle Nacht, und der Wind kam von der See. Das Haus auf dem Berg war nicht zu sehen, auch die "
          "Lampe war aus, und wie es mit den Leuten im Dorf stand, das wusste noch keiner von ihnen.",
    "fr": "Il était une fois dans une ville de la côte un homme qui avait plus de livres que d'amis. Les gens du port "
          "le saluaient, mais il ne parlait pas avec eux, et sa porte est restée fermée pour tous.",
    "es": "En un lugar de la costa vivía un hombre que no tenía más que sus libros y una lámpara. Los vecinos del "
          "puerto lo saludaban por la mañana, pero él no se paraba con nadie, como si fuera de piedra.",
    "it": "Il vecchio viveva in una casa sulla costa con i suoi libri e una lampada. La gente del porto lo salutava, "
          "ma non si fermava mai con nessuno, e anche di notte la finestra della torre era come un faro.",
    "pt": "O velho morava numa casa da costa com os seus livros e uma lâmpada. As pessoas do porto não o viam, mas ele "
          "olhava para o mar como se fosse um livro, e a noite para ele foi mais do que um dia.",
    "nl": "Het was een donkere nacht en de wind kwam van zee. De man in het huis was niet bang, maar hij had ook geen "
          "lamp meer, en dat er iemand op de weg naar het dorp zou zijn, dat wist hij niet van de anderen.",
    "pl": "Wieloryb jest ssakiem, który żyje w morzu i oddycha powietrzem. Nikt nie wie, ile ma lat, ale latarnik "
          "widział go tej zimy trzy razy, zanim statek odpłynął z portu na północ.",
    "da": "Det var en mørk nat, og vinden kom fra havet, men ingen i huset vidste det. Lampen var slukket, og hvordan "
          "det gik folkene i landsbyen, det vidste endnu ingen af dem.",
    "ru": "Кит живёт в море, и никто не знает, сколько ему лет. Смотритель маяка видел его этой зимой три раза, прежде "
          "чем корабль ушёл из порта на север.",
    "el": "Ήταν μια σκοτεινή νύχτα και ο άνεμος ερχόταν από τη θάλασσα. Το σπίτι στον λόφο δεν φαινόταν, και η λάμπα "
          "ήταν σβηστή, και κανείς δεν ήξερε τι έκαναν οι άνθρωποι στο χωριό.",
    "he": "היה לילה חשוך והרוח באה מן הים. הבית שעל הגבעה לא נראה, גם המנורה כבתה, ומה עלה בגורל האנשים בכפר לא ידע "
          "עדיין איש מהם, עד שהאונייה יצאה מן הנמל צפונה.",
    "zh": "那是一个漆黑的夜晚，风从海上吹来。山上的房子看不见，灯也灭了，村里的人怎么样了，他们当中还没有一个人知道。",
    "ja": "暗い夜で、風は海から吹いていた。丘の上の家は見えず、灯りも消えていて、"
          "村の人々がどうしているのか、まだ誰も知らなかった。",
    "ko": "어두운 밤이었고 바람은 바다에서 불어왔다. 언덕 위의 집은 보이지 않았고 "
          "등불도 꺼져 있었으며 마을 사람들이 어떻게 지내는지 아직 아무도 몰랐다.",
}


@pytest.mark.parametrize("code", TEXTS)
def test_a_short_text(code: str) -> None:
    assert language_of(["", TEXTS[code]]) == code


@pytest.mark.parametrize("code", ["en", "de", "zh"])
def test_a_long_text_among_tables_and_code(code: str) -> None:
    rows = "Lamp oil | 84.50 | 1,115.50\nHarbour dues | 310.00 | 1,425.50\n" * 9
    lines = "    if value is None:\n        return self._cache[name]\n" * 3
    assert language_of([TEXTS[code] + "\n" + rows + lines] * 40) == code


@pytest.mark.parametrize("text", [
    "", "the of and", "x1 y2 3.14 2.71 0.57 alpha beta gamma " * 20,
    "Item | Qty | Price\n" + "Lamp oil, refined | 12 | 84.50\nRope, hemp | 3 | 17.20\nTar | 1 | 9.90\n" * 50,
    "lamp oil | rope and tar | paint\nbread | salt | harbour dues\n" * 40,
    "Aldo Rossi, Berta Müller, Carlos García, Dmitri Ivanov, Elena Dubois, François Nowak\n" * 30,
    "name\tqty\tprice\n" + "lamp\t3\t4.50\n" * 60, "A-17 B-22 C-31\n" * 60,
    "var nodus = materia(sanus, vita);\nalter.magna = (curia) => { terra(luna, stella); }\n" * 30,
    "ANCHOR CHAIN ROPE TAR\n" * 60,
    "\n".join((TEXTS["en"], TEXTS["de"], TEXTS["pl"])) * 3])
def test_what_is_not_clear_is_not_guessed(text: str) -> None:
    assert language_of([text]) == ""


def test_legal_english_is_english() -> None:
    assert language_of([
        "Plaintiff avers, inter alia, that the writ of habeas corpus ad subjiciendum was denied sub nom. Doe v. Roe, "
        "410 U.S. 113, 120 (1973), prima facie in pari materia with the amicus curiae brief filed pro hac vice."]) \
        == "en"


def test_large_languages_load_nothing_and_too_little_memory_loses_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large() -> None:
        raise MemoryError

    monkeypatch.setattr(language, "_identifier", too_large)
    without = ["en", "de", "fr", "es", "nl", "zh", "ja", "ko", "el", "he"]  # by small words or by letters
    assert [language_of([TEXTS[code]]) for code in without] == without
    assert language_of([TEXTS["pl"]]) == ""
    filler = "Lorem ipsum dolor sit amet, consectetuer adipiscing elit, sed diam nonummy nibh. " * 2
    assert language_of(["\n".join([TEXTS["en"]] * 12 + [filler] * 11)]) == "en"  # the half, and no other is clear


def test_every_language_has_a_name() -> None:
    assert set(LANGUAGES) >= NAMED


def test_the_reader_says_it_within_its_limits(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text(f"<html lang=en-GB><p>{TEXTS['fr']}", encoding="utf-8")
    document = read_document(path)
    assert (document.language, document.recognised, document.spoken) == ("en-GB", "fr", "fr")
    path.write_text("<html lang=pt-BR><p>Sim.")
    assert read_document(path).spoken == "pt"
