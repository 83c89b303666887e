"""Questions in other languages than English find inflected forms, by stems of the document's language."""

from __future__ import annotations

import pytest

from triforce_core.documents.document import Document, Page
from triforce_core.evidence.bm25 import BM25, telling
from triforce_core.evidence.finder import PassageFinder
from triforce_core.evidence.vectors import stem

TEXTS = {
    "de": ["Die alten Häuser wurden 1851 verkauft.", "Der Hafenmeister zählte neun Schiffe.",
           "Im Winter schlossen die Müller ihre Mühlen.", "Über den Fluss führten drei Brücken."],
    "fr": ["Les vieilles maisons furent vendues en 1851.", "Le maître du port compta neuf navires.",
           "L'hiver, les meuniers fermaient leurs moulins.", "Trois ponts traversaient la rivière."],
    "es": ["Las casas viejas se vendieron en 1851.", "El capitán del puerto contaba nueve naves.",
           "En invierno los molineros cerraban sus molinos.", "Tres puentes cruzaban el río."],
}


@pytest.mark.parametrize(("language", "question", "place"), [
    ("de", "Welches Haus wurde verkauft?", 0), ("de", "Wer zählt das Schiff?", 1), ("de", "Welche Mühle schloss?", 2),
    ("de", "Welche Brücke führt hinüber?", 3), ("fr", "Quelle maison a-t-on vendue ?", 0),
    ("fr", "Qui compte un navire ?", 1), ("fr", "Où est le moulin qui ferme l'hiver ?", 2),
    ("fr", "Quel pont traverse ici ?", 3), ("es", "¿Qué casa vieja se vendió?", 0), ("es", "¿Cuántas nave hay?", 1),
    ("es", "¿Qué molino cierra el molinero?", 2), ("es", "¿Por dónde cruza un puente?", 3)])
def test_inflected_forms_are_found(language: str, question: str, place: int) -> None:
    scores = BM25([telling(text, language) for text in TEXTS[language]], language).scores(question)
    assert int(scores.argmax()) == place and scores.max() > 0


@pytest.mark.parametrize(("language", "word", "expected"), [
    ("de", "häuser", "haus"), ("fr", "l'homme", "homm"), ("es", "molinos", "molin"), ("en", "houses", "hous"),
    ("ja", "言葉", "言葉")])
def test_stems(language: str, word: str, expected: str) -> None:
    assert stem(word, language) == expected


def test_the_documents_language_chooses() -> None:
    document = Document("t", "txt", (Page("1", "\n".join(TEXTS["de"])),), "test", recognised="de")
    first, *_ = PassageFinder(document).find("Hauses")
    assert first.passages[0].text == TEXTS["de"][0]
