"""A card's language: the file's word for it, a guess that is called one, and nothing where nothing is clear."""

from __future__ import annotations

from pathlib import Path

import pytest
from little_books import make_document, wait_for, write_book

from triforce_core import Document, Page
from ui.app.library import Library, guessed_language, language
from ui.app.services import Services
from ui.page import library as library_view
from ui.page.library import in_words

TEXTS = {
    "en": "It was the best of times, it was the worst of times, and the keeper of the house had no idea of what was to "
          "come that night from the sea, for he was alone with his books and but one lamp.",
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
}


def book(text: str, tag: str = "") -> Document:
    return Document("t", "txt", (Page("1", ""), Page("2", text), Page("3", text)), "test", language=tag)


@pytest.mark.parametrize("code", TEXTS)
def test_the_guess(code: str) -> None:
    assert guessed_language(book(TEXTS[code])) == code


@pytest.mark.parametrize("text", [
    "", "the of and", "Wieloryb jest ssakiem, który żyje w morzu i oddycha powietrzem. " * 9,
    "Det var en mørk nat, og vinden kom fra havet, men ingen i huset vidste det. " * 9,
    "Кит живёт в море, и никто не знает, сколько ему лет. " * 9, "x1 y2 3.14 2.71 0.57 alpha beta gamma " * 20,
    "The keeper is here. Der Wärter ist nicht da und die Lampe ist aus. The lamp of the house was in the sea. " * 5])
def test_what_is_not_clear_is_not_guessed(text: str) -> None:
    assert guessed_language(book(text)) == "" and in_words(language(book(text))) == ""


def test_the_files_word_comes_first_and_a_doubt_is_told() -> None:
    german = book(TEXTS["de"], "de-AT")
    assert in_words(language(german)) == "German (stated in the file)"
    wrong = book(TEXTS["de"], "en")
    assert in_words(language(wrong)) == "English (stated in the file), but by its words probably German"
    assert in_words(language(book(TEXTS["de"]))) == "probably German"
    assert in_words(language(book("Kala.", "fo"))) == "fo (stated in the file)", "a tag without a name stays"


def test_the_card_and_the_library_keep_it(services: Services, tmp_path: Path) -> None:
    entry = services.library.add(write_book(tmp_path, "a.txt"))
    services.extractor.extract(entry.id)
    wait_for(lambda: services.library.get(entry.id).state == "ready")
    services.library.store(entry.id, book(TEXTS["de"], "en"))
    again = Library(services.database, services.folders.library)
    assert again.document(entry.id).language == "en" and again.get(entry.id).language == "en~de"
    html = library_view.about(again.get(entry.id), 0, "", 0.0)
    assert "<dt>Language</dt><dd>English (stated in the file), but by its words probably German</dd>" in html
    services.library.store(entry.id, make_document(1, words=10))
    assert "Language" not in library_view.about(services.library.get(entry.id), 0, "", 0.0)
