"""Where sentences end: not at abbreviations of law, citation and reference, nor at initials, in four languages."""

from __future__ import annotations

import pytest

from triforce_core.documents.sentences import runs_on, sentence_spans


def sentences(line: str) -> list[str]:
    return [line[start:end] for start, end in sentence_spans(line)]


@pytest.mark.parametrize("line", [
    # law
    "Under Sec. 5 of the Act and Pub. L. No. 111-148, Stat. 119 applies. | The answer is no. | He left.",
    "Roe v. Wade, 410 U.S. 113, and 42 U.S.C. 1983 bind the D.C. Circuit. | The D. C. Circuit held so.",
    "Fed. R. Civ. P. 12(b)(6) and Cal. Civ. Code 1798 apply. | Cf. Brown v. Board, 347 U.S. 483. | Id. at 495.",
    "It said so (9th Cir. 1999). | See Smith v. The State, Art. IV and Ex. A-3.",
    # citation and reference
    "See Fig. 3, Eq. 4, vol. II, ch. 7 and pp. 3-5. | She ate a fig. | Then she left.",
    "Smith et al. 2019 and Jones et al. Nature 5 agree. | So do Lee et al. | The others do not.",
    "Klesman, A. “Our First Visitor.” | Univ. Press of N.Y. City, Sept. 11.",
    # initials, labels and names
    "J. R. R. Tolkien met John F. Kennedy, Jr. | They talked. | I. M. Pei built it. | It is better than I. | Tom left.",
    "Take vitamin C. | Patients recover. | That is plan B. | Nobody has another.",
    "It was bought by Acme Inc. | The price rose. | They live in the U.S. | The rest left with St. Paul.",
    # items, articles and clauses keep their number
    "1. The parties agree. | 2. The fee is due. | A. Terms apply.", "Section 5. Purpose of the Act. | It ends.",
    "§ 12. Liability of owners. | None is liable.",
    "It ends with this licence. c. If a term is void, the others stay.", "Appendix A. Acknowledgements",
    # German
    "Vgl. Müller, S. 12, und Art. 5 Abs. 2 Nr. 3 GG i. V. m. Kap. 4, z. B. Häuser. | Es war 1905. | Danach kam nichts.",
    "Am 5. Mai endete der 2. Weltkrieg im 20. Jahrhundert. | Es kostete 3 Mio. Euro, bzw. Mark, u. a. Gold.",
    # French
    "M. Dupont cite l'art. L. 123 chap. 3, p. 5. | Le Conseil décide. | Mme Weil meurt en 50 av. J.-C. | Il dit.",
    # Spanish
    "El Sr. García vive en EE. UU. | El resto no. | ¿Y la pág. 5, art. 3 núm. 4? | ¡Nada! | «Así es». | Él calló.",
    # scripts without our capitals, or without blanks
    "Он пришёл. | Она ушла.", "Ήρθε. | Έφυγε.", "באתי. | הלכתי.", "जाओ। | आओ।",
])
def test_sentences_end_where_they_do(line: str) -> None:
    wanted = line.split(" | ")
    assert sentences(" ".join(wanted)) == wanted


def test_sentences_without_blanks_between_them() -> None:
    assert sentences("他来了。她走了！真的？") == ["他来了。", "她走了！", "真的？"]
    assert sentences("「行く。」と言った。終わり。") == ["「行く。」と言った。", "終わり。"]


def test_sentences() -> None:
    line = 'Mr. A. Fox of the U.S. Navy came. "Did he?" she asked. He did (see Fig. 3). Yes! i.e. No.'
    spans = list(sentence_spans(line))
    assert [line[a:b] for a, b in spans] == [
        "Mr. A. Fox of the U.S. Navy came.", '"Did he?" she asked.', "He did (see Fig. 3).", "Yes! i.e. No.",
    ]  # fmt: skip
    assert runs_on("the sailor knows", "it well.") and not runs_on("He knew.", "it")
    assert not runs_on("A HEADING", "The text") and not runs_on("", "it")
