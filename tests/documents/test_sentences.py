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
    "See 410 F. Supp. 2d 113, 120 (S.D.N.Y. 2003). | The court agreed.",
    "Under 28 U.S.C. § 1331 and Fed. R. Evid. 403 it stands. | So held the 2d Cir. in 1999.",
    "Marbury v. Madison, 5 U.S. (1 Cranch) 137 (1803), controls. | Nothing else does.",
    "See id. § 4; accord Doe v. Bolton. | The S. Ct. held in Doe v. U.S. that it may.",
    "See Restatement (Second) of Torts § 402A cmt. c (Am. L. Inst. 1965). | It is old.",
    "Rev. Proc. 2004-12, 2004-1 C.B. 528, and Treas. Reg. § 1.61-1 apply. | Pay.",
    "Pursuant to Reg. (EU) No. 575/2013, arts. 4 and 5, banks report. | They do.",
    "The hearing is at 9 a.m. | Bring the papers. | The firm (est. 1901) is at No. 5 High St. London.",
    # citation and reference
    "cf. Fig. 3 in Knuth, D. E., The Art of Computer Programming, vol. 1, 3rd ed., p. 5. | It is long.",
    "Ibid., ch. xii, para. 3. | See also App. B, Tbl. 4. | W. E. B. Du Bois wrote it. | E. M. Forster read it.",
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
    "Nach Art. 5 Abs. 2 Satz 1 GG gilt das. | Siehe Bd. 3, S. 14, und Anm. 7. | Der Rest fehlt.",
    "Vgl. BGH, Urt. v. 12. März 2004, Az. III ZR 12/03, NJW 2004, S. 1234 ff. | Es bleibt dabei.",
    "Die Fa. Müller und die Firma Dr. Ing. h. c. F. Porsche AG klagten. | Sie verloren.",
    "S. auch Kap. 4 u. 5, Fn. 3, Rdn. 12 und Hs. 2 und H. 2, Sp. 45 f. im Band. | Mehr steht dort nicht.",
    # French
    "Cass. civ. 1re, 5 janv. 2010, n° 08-12.345, Bull. civ. I, n. 3. | La cour rejette.",
    "V. Cass. com., 3 févr. 2009. | L'al. 2 de l'art. 1382 C. civ. s'applique. | Le juge décide.",
    "Le Dr. J.-P. Martin et le Pr. Dupont signent, cf. fig. 3 et tab. 2, p. ex. la ligne 4. | Ils partent.",
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
