"""Questions made from any sentence of a document, so that looking things up can be learned from every text."""

from __future__ import annotations

import re
from random import Random

FUNCTION_WORDS = frozenset(
    """a an the and or but if of to in on at by for from with without into onto upon over under as is are was were be
    been being am do does did done have has had having will would shall should may might must can could not no
    nor so than then that this these those there here it its he she they them their theirs his hers her him i
    you we us our your my me mine who whom whose which what when where why how all any some such only own same
    very too just also more most much many other another each every both few about after before between
    through during again once up down out off because while until against now yet still even ever never said
    one thus however though although""".split()
)
NUMBER_WORDS = frozenset(
    """two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty hundred thousand
    million billion""".split()
)
ARTICLES = ("the", "a", "an", "his", "her", "their", "its")
AUXILIARIES = ("did", "was", "is", "does", "were", "are", "had", "would", "has", "do", "can")
KEYWORD_FORMS = (
    "What does the text say about %s?", "Quote the sentence about %s.", "Where does it mention %s?",
    "What is said of %s?", "Tell me about %s.", "%s?", "%s", "Find %s.", "What about %s?",
    "Is there anything about %s?", "Which sentence mentions %s?", "What is written about %s?",
    "What happens with %s?", "Who or what is %s?", "Describe %s.", "Explain %s.", "What is %s?", "Who is %s?",
)  # fmt: skip
OPENINGS = ("According to the text, ", "In the passage, ", "Do you know ", "In the text, ", "Can you tell me ")
FOLLOW_UPS = (
    "What comes next?", "And then?", "What does it say after that?", "Quote the next sentence.", "Go on.",
    "What follows?", "Continue.", "What happens next?",
)  # fmt: skip
_PUNCTUATION = '.,;:!?"()[]'
_YEAR = re.compile(r"(?:1\d|20)\d\d")
_ENDINGS = (("ing", 3), ("ied", 1), ("ed", 2), ("es", 1), ("s", 1), ("ly", 2))


def reshape_word(word: str, chance: Random) -> str:
    """The word with another ending, as a question might use it."""
    if not word.isalpha() or not word.islower() or len(word) < 5:
        return word
    for ending, cut in _ENDINGS:
        if word.endswith(ending):
            return word[:-cut]
    return word + chance.choice(("s", "ed", ""))


def is_content(word: str) -> bool:
    """Whether a word says something on its own."""
    return word.lower() not in FUNCTION_WORDS and (len(word) > 2 or word[0].isdigit())


def polish(question: str, chance: Random, mark: bool = True) -> str:
    """Varied beginnings, cases and ends."""
    question = " ".join(question.split())
    if chance.random() < 0.06:
        question = chance.choice(OPENINGS) + question[0].lower() + question[1:]
    if chance.random() < 0.85:
        question = question[0].upper() + question[1:]
    if chance.random() < 0.05:
        question = question.lower()
    if mark and chance.random() < 0.9:
        question = question.rstrip("?.") + "?"
    return question


def keyword_question(words: list[str], content: list[int], chance: Random) -> str:
    """A request that names a few words of the sentence."""
    count = chance.randint(2, min(5, len(content)))
    if chance.random() < 0.5:
        first = chance.randint(0, len(content) - count)
        chosen = content[first : first + count]
    else:
        rarity = {i: -len(words[i]) - 2 * words[i][0].isupper() - chance.random() * 4 for i in content}
        chosen = sorted(content, key=rarity.__getitem__)[:count]
    if chance.random() < 0.5:
        chosen = sorted(chosen)
    named = [reshape_word(words[i], chance) if chance.random() < 0.15 else words[i] for i in chosen]
    if chosen == list(range(chosen[0], chosen[0] + count)) and chance.random() < 0.5:
        text = " ".join(words[i] for i in chosen)
    else:
        text = chance.choice((", ".join(named), " ".join(named), f"{' '.join(named[:-1])} and {named[-1]}"))
    return polish(chance.choice(KEYWORD_FORMS) % text, chance, mark=False)


def answer_candidates(words: list[str], content: list[int], chance: Random) -> list[tuple[float, int, int, str]]:
    """What a question could ask for: (weight, first word, end, question word)."""
    found: list[tuple[float, int, int, str]] = []
    for i, word in enumerate(words):
        if _YEAR.fullmatch(word):
            found.append((3, i, i + 1, chance.choice(("When", "In what year", "What year", "When"))))
        elif word[0].isdigit() or (i and word.lower() in NUMBER_WORDS):
            asked = chance.choice(("How many", "How many", "How much", "What number of", "What"))
            found.append((2, i, i + 1, asked))
    i = 1 if len(words) > 1 and not words[1][0].isupper() else 0
    while i < len(words):
        if not words[i][0].isupper() or words[i] == "I" or words[i].lower() in FUNCTION_WORDS:
            i += 1
            continue
        end = i + 1
        while end < min(len(words), i + 4) and words[end][0].isupper():
            end += 1
        before = words[i - 1].lower() if i else ""
        place = before in ("in", "at", "near", "from")
        asked = chance.choice(
            ("Where", "Where", "What place", "In which") if place else ("Who", "Who", "What", "Which")
        )
        found.append((2, i, end, asked))
        i = end
    for i in content:
        if i and words[i][0].islower():
            first = i - 1 if words[i - 1].lower() in ARTICLES and chance.random() < 0.4 else i
            end = i + 2 if i + 1 in content and chance.random() < 0.5 else i + 1
            found.append(
                (0.5, first, end, chance.choice(("What", "What", "What", "Which", "What kind of", "How", "Why")))
            )
    return found


def thin(words: list[str], chance: Random, keep: float, keep_function: float, reshape: float) -> list[str]:
    """Some of the words, some with another ending."""
    kept: list[str] = []
    for word in words:
        function = word.lower() in FUNCTION_WORDS
        if chance.random() <= (keep_function if function else keep):
            kept.append(reshape_word(word, chance) if not function and chance.random() < reshape else word)
    return kept


def cloze_question(words: list[str], first: int, end: int, asked: str, chance: Random) -> str | None:
    """A question that puts a question word in the place of words[first:end]."""
    keep, keep_function = chance.choice((1.0, 0.85, 0.7)), chance.choice((1.0, 0.9, 0.5, 0.15))
    reshape = chance.choice((0, 0.15, 0.4))
    left = thin(words[max(0, first - chance.randint(2, 14)) : first], chance, keep, keep_function, reshape)
    right = thin(words[end : end + chance.randint(2, 14)], chance, keep, keep_function, reshape)
    if left and left[0].lower() in FUNCTION_WORDS:
        left[0] = left[0].lower()
    said_left, said_right = sum(map(is_content, left)), sum(map(is_content, right))
    helper, form = chance.choice(AUXILIARIES), chance.random()
    if said_left + said_right < 2:
        return None
    if asked.startswith("How m") or asked in ("In which", "Which", "What kind of", "What number of"):
        parts = [asked, *right[:2], helper, *left, *right[2:]] if chance.random() < 0.7 else [asked, *right, *left]
    elif said_right >= 2 and form < 0.4:
        parts = [asked, *right]
    elif said_left >= 2 and form < 0.7:
        parts = [asked, helper, *left, *(right if chance.random() < 0.5 else [])]
    else:
        parts = chance.choice(
            (
                [*left, asked.lower(), *right],
                [asked, *left, *right],
                [asked, helper, *right, *left],
                [*left, "___", *right],
            )
        )
    return polish(" ".join(parts), chance)


def ask(sentence: str, chance: Random) -> tuple[str, str | None] | None:
    """A question that the sentence answers, and the short answer where there is a plain one."""
    words = [stripped for word in sentence.replace("--", " ").split() if (stripped := word.strip(_PUNCTUATION))]
    content = [i for i, word in enumerate(words) if is_content(word)]
    if len(content) < 3:
        return None
    if chance.random() < 0.3:
        return keyword_question(words, content, chance), None
    candidates = answer_candidates(words, content, chance)
    if not candidates:
        return None
    weight, first, end, asked = chance.choices(candidates, [candidate[0] for candidate in candidates])[0]
    answer = " ".join(words[first:end])
    question = cloze_question(words, first, end, asked, chance)
    if question is None or answer not in sentence:
        return None
    plain = weight > 1 or chance.random() < 0.3
    return question, answer if plain else None


def vary(question: str, chance: Random) -> str:
    """A written question, now and then with words left out, changed or in lower case."""
    if chance.random() > 0.5:
        return question
    words = question.split()
    if len(words) > 6:
        drop, reshape = chance.random() * 0.35, chance.choice((0, 0, 0.2))
        kept = [reshape_word(w, chance) if chance.random() < reshape else w for w in words if chance.random() > drop]
        question = " ".join(kept or words)
    return question.lower().rstrip("?") if chance.random() < 0.2 else question


_SYLLABLES = (
    "ba be bor cal dan del el fen gar hol is jor ka kel lam lor mar mel mir nor ol per quin ran ros sal sel tan tor ul "
    "val ven wil yor zan"
).split()
_NEEDLES = (
    ("The {key} of {name} is {value}.", "What is the {key} of {name}?"),
    ("{name} keeps the {key} {value}.", "Which {key} does {name} keep?"),
    ("For {name}, the {key} was set to {value}.", "What was the {key} for {name}?"),
    ("Remember that the {key} for {name} is {value}.", "What {key} is for {name}?"),
)
_KEYS = "code number colour password price age weight height score address key name date title rank".split()


def invented_name(chance: Random) -> str:
    """A name that stands in no text."""
    return "".join(chance.choice(_SYLLABLES) for _ in range(chance.randint(2, 3))).capitalize()


def needle(chance: Random) -> tuple[str, str, str]:
    """An invented fact: sentence, question, answer."""
    number = str(chance.randint(10, 99_999))
    value = number if chance.random() < 0.6 else chance.choice(("red", "blue", "green", "black", invented_name(chance)))
    sentence, question = chance.choice(_NEEDLES)
    filled = {"name": invented_name(chance), "key": chance.choice(_KEYS), "value": value}
    return sentence.format(**filled), question.format(**filled), value
