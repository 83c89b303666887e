"""Tell thanks, tasks and summaries from questions. Rules, tried in order; what none of them knows is a question."""

from __future__ import annotations

import re
from enum import Enum


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


_PLEASE = r"\A(?:please |can you |could you |would you )*"
_TEXT = (r"(?:document|text|book|report|paper|article|chapter|page|file|guide|manual|handbook|proposal|contract|"
         r"agreement|opinion|case|story|novel|speech|essay|rfc|pep|standard|section)")
_MANY = (r"(?:requirements|conditions|exceptions|examples|reasons|risks|options|types|kinds|benefits|"
         r"(?:dis)?advantages|drawbacks|limitations|recommendations|alternatives|goals|criteria|steps|stages|causes|"
         r"effects|consequences|arguments|principles)")
_SOCIAL = re.compile(
    r"(?:(?:ok(?:ay)?|great|perfect|cool|nice|yes|no|sorry|please|thanks?|thank you|thx|cheers|hello|hi|hey|bye|"
    r"goodbye|good (?:morning|evening|afternoon|night|day|job)|well done|never ?mind|got it|that help(?:s|ed)|so much|"
    r"very much|a lot|again|for now|there)[\s,.!?'’…-]*)+|"
    r"(?:who|what) are you|are you .*|what can (?:you do|i ask)(?: (?:for me|you|here))?|help(?: me)?|"
    r"how does this (?:app |chat )?work|who (?:made|built|trained) you")
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
    line = " ".join(text.lower().replace("’", "'").split()).strip(" .!?…,")
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
