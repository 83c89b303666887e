"""Kinds of requests and of questions, and the words that name their subject."""

from __future__ import annotations

import pytest

from triforce_core.evidence.question import RequestKind, points_back, request_kind, subject_words

KINDS = {
    RequestKind.SOCIAL: ["thanks!", "Hello", "ok", "great, thank you so much", "?", "good morning", "who are you?",
                         "what can you do", "are you ChatGPT?", "help", "Vielen Dank!", "Danke schön", "Guten Tag",
                         "Merci beaucoup !", "Bonjour", "Muchas gracias", "¡Gracias!", "Hola, buenos días"],
    RequestKind.TASK: ["translate this to German", "Write me a poem about it", "shorter please", "code me a parser",
                       "plan a trip", "rewrite the introduction"],
    RequestKind.LANGUAGE: ["wie hoch ist die Gebühr?", "quelle est la date et pourquoi ?", "¿cuál es la tarifa?",
                           "これは何ですか"],
    RequestKind.MORE: ["tell me more", "go on", "what comes after that?"],
    RequestKind.SUMMARY: ["What is this about?", "main points please", "Summarise chapter 3", "tl;dr",
                          "what does this guide cover", "Fasse das Dokument bitte zusammen", "Worum geht es hier?",
                          "Worum geht es in dem Dokument?", "Die wichtigsten Punkte, bitte", "eine Zusammenfassung",
                          "Résume ce texte", "De quoi parle ce document ?", "Un résumé, s'il vous plaît",
                          "Haz un resumen", "¿De qué trata este documento?", "¿Cuáles son los puntos principales?"],
    RequestKind.SEVERAL: ["list the requirements", "pros and cons of the plan", "what does it say about ships?",
                          "What are the benefits?"],
    RequestKind.SENTENCE: ["Who counted the ships?", "What is the harbour master?", "why did he leave",
                           "Who is the author?", "code for checking the tide", "At which moment is my data saved?",
                           "plan administrator duties", "order of payments", "book value per share", "set-off rights",
                           "can a ship leave without papers?", "May I leave at night?",
                           "what can I do about the noise?", "when did the talks resume?",
                           "what must stand in my résumé?"],
}


@pytest.mark.parametrize(("line", "kind"), [(line, kind) for kind, lines in KINDS.items() for line in lines])
def test_every_kind_is_found(line: str, kind: RequestKind) -> None:
    assert request_kind(line) is kind


def test_the_subject_is_what_is_left() -> None:
    assert subject_words("What does the text say about the harbour master's ships?") == ["harbour", "master's", "ships"]
    assert subject_words("What is it?") == ["what", "is", "it"]  # rather all than none


def test_questions_that_need_the_one_before() -> None:
    for question in ("And why did he do that?", "why?", "And the harbour?", "Why did the master do it?",
                     "And where does it come from, and who paid?"):
        assert points_back(question), question
    for question in ("What does the name Bristol mean and where does it come from?", "What is a harbour?"):
        assert not points_back(question), question
    assert not points_back("Why did the harbour master of Bristol leave his post in the year of the great storm?")
