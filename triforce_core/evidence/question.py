"""Find what a line asks for: small talk, a task, a summary or an answer, and with which words."""

from __future__ import annotations

import re
from enum import Enum

WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+(?:[.,]\d+)*")


# They speak of the request, not of its subject: "What happens next?" must not favour sentences that say "next".
REQUEST = frozenset(
    """a about according after again all also am an and answer any are as asked at be because been before being book but
    by came can chapter come comes continue could describe did do document does doing done else even ever exactly
    exist explain explained find follow follows for from get gets give given go got had happen happened happens has have
    having he her here him his how i if in into is it its just know like list made make many may me mean meaning means
    mention mentioned mentions more much must my name next no not of off on one or other our out page paragraph passage
    please quote quoted really report said same say saying says sentence shall she should show so some such tell text
    than that the their them then there these they thing things this those to too under until up upon us use used using
    very want was way we were what what's whats when where which while who whom whose why will with word words would
    write written yes you your kind sort type exactly actually anything something someone anyone there's it's can't
    define defined definition meant don't doesn't didn't isn't wasn't won't author section according table""".split()
)
_POINTS_BACK = re.compile(r"\b(?:it|its|they|them|their|this|that|these|those|he|him|his|she|her|there|then|one|"
                          r"ones)\b")
_CLAUSE = re.compile(r"[,;:]|\b(?:and|or|but)\b")
_COMPLETE = re.compile(r"\s*(?:what|who|where|when|why|how) (?:is|are|was|were|do|does|did)\b")


def subject_words(question: str) -> list[str]:
    """Return its words but for those that speak of the request, in lower case, each once; all if none is left."""
    words = list(dict.fromkeys(WORD.findall(question.lower().replace("’", "'"))))
    return [word for word in words if word not in REQUEST] or words


def points_back(question: str) -> bool:
    """Return whether it needs the question before it to be understood: "And why did he do that?". What a pronoun stands
    for may be said before it in the question itself: "What does the name mean and where does it come from?"."""
    line, words = question.lower(), subject_words(question)
    named = [word for word in words if word not in REQUEST]
    first = _CLAUSE.split(line, maxsplit=1)[0]
    if any(word in named for word in WORD.findall(first)):
        line = first
    if _POINTS_BACK.search(line):
        return len(words) <= 6
    return len(words) <= 1 and not (named and _COMPLETE.match(line))


def compares(question: str) -> bool:
    """Return whether a question about several documents wants the same of each."""
    return _COMPARES.search(question) is not None


class RequestKind(Enum):
    """Name the kind of answer that a line asks for: a passage, a list of sentences, the gist of the whole or of a
    section, what follows the last quotation; or what no quotation gives: small talk, something to be written, another
    language."""

    SENTENCE = "sentence"
    SEVERAL = "several"
    SUMMARY = "summary"
    MORE = "more"
    SOCIAL = "social"
    TASK = "task"
    LANGUAGE = "language"


_COMPARES = re.compile(
    r"\b(?:compar\w+|differ(?:s|ed|ent|ences?)?|versus|vs|in common|contrast\w*|both|each of|either of|the two|"
    r"vergleich\w*|unterschied\w*|beiden|différences?|diferencias?)\b", re.IGNORECASE)
_PLEASE = r"\A(?:please |can you |could you |would you )*"
_TEXT = (r"(?:document|text|book|report|paper|article|chapter|page|file|guide|manual|handbook|proposal|contract|"
         r"agreement|opinion|case|story|novel|speech|essay|rfc|pep|standard|section)")
_MANY = (r"(?:requirements|conditions|exceptions|examples|reasons|risks|options|types|kinds|benefits|"
         r"(?:dis)?advantages|drawbacks|limitations|recommendations|alternatives|goals|criteria|steps|stages|causes|"
         r"effects|consequences|arguments|principles)")
_SOCIAL = re.compile(
    r"(?:(?:ok(?:ay)?|great|perfect|cool|nice|yes|no|sorry|please|thanks?|thank you|thx|cheers|hello|hi|hey|bye|"
    r"goodbye|good (?:morning|evening|afternoon|night|day|job)|well done|never ?mind|got it|that help(?:s|ed)|so much|"
    r"very much|a lot|again|for now|there|danke|vielen dank|dankeschön|besten dank|herzlichen dank|schönen dank|"
    r"dir|ihnen|sehr|schön|hallo|guten (?:morgen|tag|abend)|tschüss|auf wiedersehen|alles klar|super|"
    r"merci|beaucoup|bien|bonjour|bonsoir|salut|au revoir|d'accord|parfait|s'il (?:vous|te) plaît|à vous|"
    r"muchas|gracias|por todo|hola|buenos días|buenas (?:tardes|noches)|adiós|vale|perfecto|"
    r"genial)[\s,.!?'’…-]*)+"
    r"|(?:who|what) are you|are you .*|what can (?:you do|i "
    r"ask)(?: (?:for me|you|here))?|help(?: me)?|how does this (?:app |chat )?work|who (?:made|built|trained) you")
_MORE = re.compile(
    r"(?:and )?(?:please )?(?:(?:tell|show|give) me )?(?:(?:a bit |some )?more(?: details?| about (?:that|this|it))?"
    r"|go on|continue|keep going|what else|anything else|what (?:comes|follows|happens|happened) (?:after|next)"
    r"(?: (?:that|this|it))?)(?: please)?")
_SUMMARY = re.compile(
    _PLEASE + r"(?:give me |i want |write )?(?:an? |the |your )?(?:very |quick |short |brief )*"
    r"(?:summar(?:y|ise|ize)|tl;?dr|gist|overview|abstract|synopsis|outline|recap|digest)\b|\bsummari[sz]e|"
    r"\bsum(?:med)?(?: \w+)? up\b|\bin (?:short|brief|a nutshell|a few (?:words|sentences))\b|"
    r"\b(?:main|key|central|most important) (?:points?|ideas?|findings?|messages?|takeaways?|themes?|arguments?|"
    r"conclusions?|topics?)\b|"
    rf"\bwhat(?:'s| is| was| are| were) (?:this|it|the|that|these|those)(?: \w+)? ?{_TEXT}? (?:all )?about"
    r"(?: overall| in general)?(?:,? and .{0,200})?\Z|"
    r"\bfass(?:e|t|en)? (?:\w+ ){0,5}zusammen\b|\bzusammenfass(?:ung|en)\b|"
    r"\bworum geht(?:'s| es)\b(?: \w+){0,3}\Z|\b(?:wichtigsten|zentralen) (?:punkte|aussagen|ergebnisse)\b|"
    r"\b(?:un|le|du|bref) résumé\b|\Arésum(?:e|é|er|ez)\b|\bde quoi (?:parle|traite|s'agit)\b(?: \w+){0,3}\Z|"
    r"\b(?:points|idées) (?:principaux|principales|clés|essentiels)\b|"
    r"\bresum(?:en|ir)\b|\bresúme(?:me|lo)\b|\Aresume (?:el|la|este|esta|esto)\b|"
    r"\bde qué (?:trata|habla|se trata|va)\b(?: \w+){0,3}\Z|"
    r"\b(?:puntos|ideas) (?:principales|clave)\b|"
    rf"\bwhat (?:does|do|did) (?:this|the|it) ?{_TEXT}? ?(?:mainly |mostly )?(?:cover|propose|describe|discuss|"
    r"deal with|conclude|argue|contain|explain)\Z")
_TASK = re.compile(
    _PLEASE + r"(?:(?:re)?write (?:an?|me|the|this|it|some|my)\b|translate\b|paraphrase\b|rephrase\b|compose\b|"
    r"draw\b|shorten\b|shorter\b|longer\b|simplify\b|proofread\b|calculate\b|convert\b|generate\b|create\b|"
    r"explain like\b|tell me a (?:joke|story)\b|make (?:an?|me|it)\b|turn (?:this|it|that) into\b|"
    r"code (?:me|an?|it|this|that)\b|plan (?:me|us|my|our|an?)\b)|\btranslat(?:e|ion)\b .{0,200}\b(?:in)?to\b")
_SEVERAL = re.compile(
    _PLEASE + r"(?:list|enumerate|compare|name (?:all|the|some|two|three|four|five)|"
    r"give me (?:all|a list|some examples)|tell me (?:about|everything))\b|"
    r"\b(?:pros and cons|advantages and disadvantages|arguments (?:for|against))\b|"
    rf"\bwhat does (?:it|(?:this|the) {_TEXT}) say (?:about|on)\b|\b(?:all|every) (?:the )?{_MANY}\b|"
    rf"\bwhat (?:are|were) (?:all |some of )?(?:the |its |their )?(?:\w+ )?{_MANY}\b|\A{_MANY}\b")
_WHOLE = ((RequestKind.SOCIAL, _SOCIAL), (RequestKind.MORE, _MORE))
_PART = ((RequestKind.SUMMARY, _SUMMARY), (RequestKind.TASK, _TASK), (RequestKind.SEVERAL, _SEVERAL))
_ENGLISH = frozenset(
    "the of and to in is are was were what who when where why how which does do did for on with that this it by from "
    "at an as be can should must a about not or has have there any me my you i tell".split())
_FOREIGN = frozenset(
    "der das und ist nicht ein eine für mit von wie warum wann wer welche wird über dem den des le les est une un dans "
    "pour qui que quoi quel quelle comment pourquoi où el los las por qué cómo cuándo quién cuál para con es il gli "
    "che cosa perché come quando dove della het een van wat hoe waarom wie zijn os um uma não em do och att som är vad "
    "hur jest nie jak dlaczego".split())


def request_kind(text: str) -> RequestKind:
    """Return what a line asks for. It knows no history: "why?" is a question like others."""
    line = " ".join(text.lower().replace("’", "'").split()).strip(" .!?…,¡¿")
    if not any(character.isalnum() for character in line):
        return RequestKind.SOCIAL
    found = [kind for kind, pattern in _WHOLE if pattern.fullmatch(line)]
    found += [kind for kind, pattern in _PART if pattern.search(line)]
    return found[0] if found else RequestKind.LANGUAGE if _foreign(line) else RequestKind.SENTENCE


def _foreign(line: str) -> bool:
    """Return whether a line is in another language than English, by its script or its small words."""
    letters = [character for character in line if character.isalpha()]
    if sum(ord(character) > 0x24F for character in letters) * 2 > len(letters):
        return True
    words = re.findall(r"[^\W\d_]+", line)
    foreign = sum(word in _FOREIGN for word in words)
    return foreign >= 2 and foreign > sum(word in _ENGLISH for word in words)
