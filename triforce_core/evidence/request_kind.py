"""What a person wants who writes a line to a model that can only quote: a sentence, several, or nothing that a
quotation
could give. Rules, tried in order; what none of them knows is a question."""

from __future__ import annotations

import re
from enum import Enum


class RequestKind(Enum):
    """SENTENCE: a question that one sentence answers. SEVERAL: one that wants a list. SUMMARY: the gist of the whole
    or of
    a section. MORE: what stands around the last quotation. The others are no questions about the document."""

    SENTENCE = "sentence"
    SEVERAL = "several"
    SUMMARY = "summary"
    MORE = "more"
    SOCIAL = "social"
    ABOUT_APP = "about app"
    TASK = "task"
    LANGUAGE = "language"
    OUTSIDE = "outside"


_SOCIAL = r"""(?:(?:ok(?:ay)?|great|perfect|cool|nice|awesome|wow|well|hm+|oh|ah|sorry|oops|please|yes|no|sure|lol|
    (?:ha)+|yeah|
    thanks?|thx|ty|cheers|hello|hi|hey|hiya|bye|goodbye|good (?:morning|evening|afternoon|night|day|bot|job|work)|
    thank you|see (?:you|ya)|much (?:obliged|appreciated)|never ?mind|no worries|wait|hang on|well done|nice (?:work|
    one|job)|
    that (?:helped|was fun|is great|'s great|helps)|you(?:'re| are) (?:brilliant|great|useless|the best|stupid|welcome)|
    this is stupid|i love you|nice to meet you|happy new year|have a (?:nice|good) \w+|how(?:'s it going|
     are you)(?: today)?|
    test(?:ing)?|one moment|got it|that(?:'s| is) all|merry christmas|so much|a lot|very much|for now|there|again|
    mate|tomorrow|
    and|you|that|the|helps|helped|helpful|it|i'm back|[0-9]+)[\s,.!?'’…-]*)+"""
_MORE = r"""(?:and )?(?:tell me |say |show me |give me )?(?:(?:a bit |some )?more(?: details?| about (?:that|this|it))?|
    go on|continue|what else|anything else|(?:is )?that all|keep going|
    (?:the )?(?:context|surroundings?)(?: of (?:that|this|the quote|it))?|
    what (?:comes|stands|is|does it say) (?:before|after|around|next)(?: (?:that|this|it))?|
    (?:in )?(?:more|longer)(?: please)?|and then|what (?:happens|happened|follows|comes) next|expand(?: on (?:that|
    this|it))?|
    show me the (?:passage|context))"""
_ABOUT_APP = r"""(?:who|what) (?:are|r) (?:you|u)\b|are you (?:a |an |human|chatgpt|real|connected|sure|there|able)|
    \b(?:which|what) (?:ai |language )?model are you|who (?:made|built|created|trained) you|what can (?:you do|
    i ask)(?: (?:for me|you|here))?\Z|
    \Ahelp(?: me)?\Z|how does this (?:app|program|chat)?\s*work\Z|how do i use (?:this|you)|what (?:kind|
    sort)s? of questions|
    \b(?:can|could|do|did) you (?:speak|remember|store|save|read pdfs?|make mistakes|understand what|see images|hear|
    forget)|
    can i (?:upload|ask follow|export|print|use you)|\Ais my data|does this work offline|access to the internet|
    your (?:context window|answers|sources?|limits?|name|languages?)\b|what languages do you|how (?:accurate|
    confident) are you|
    why do you only|how long can a document|how much does it cost to use you|do you have (?:access|feelings|a name)|
    \Asettings\Z|dark mode|font size|\Aclear\Z|\Astart over\Z|(?:save|delete) (?:the|this) (?:chat|conversation)|
    how many (?:words|pages) (?:does|is|are|has|in) (?:this|the)\b|count the (?:words|pages)"""
_TASK = r"""\A(?:please |can you |could you |would you |now |then |and )*(?:
    (?:re)?write (?:an?|me|the|this|it|some|my|down)\b|translate\b|paraphrase\b|rephrase\b|turn (?:this|it|that)|
    make (?:a|an|me|flashcards|it)\b|draw\b|
    export\b|send (?:this|it|that|me)\b|e-?mail (?:this|it|that|me)\b|print (?:this|it|that)\b|compose\b|invent\b|
    correct (?:the|my)|edit\b|replace\b|proofread\b|
    highlight (?:the|all|every)|scroll\b|fact-?check\b|read (?:it|this|that|the text) (?:out|aloud)|calculate\b|
    compute\b|convert\b|
    (?:please )?shorten\b|shorter\b|longer\b|simplify\b|repeat\b|try again|put (?:that|this|it) (?:in|into)\b|
    pretend\b|act as\b|imagine\b|role-?play|say (?:that|this|it) (?:more |again|in )|explain like|
    (?:can you |could you )?(?:say|explain|put) (?:that|this|it) (?:more )?(?:simply|again|differently)|
    create\b|generate\b|code (?:me|an?|it|this|that|up)\b|fix my\b|tell me a (?:joke|story|bedtime)|sing\b|
    (?:set|book|order|play|flip|recommend|suggest|plan|teach) (?:me|us|my|our|an?|some)\b)|
    \btranslat(?:e|ion)\b .{0,200}\b(?:in)?to\b|\b(?:answer|reply|speak) in (?:german|french|spanish|italian|dutch|
    japanese|chinese)|
    look (?:that|it|this) up|in your own words|\A(?:too (?:long|short)|that(?:'s| is) (?:wrong|not what i asked))|
    \Athat doesn't answer|\Ayou (?:missed|already|cut)"""
_OUTSIDE = r"""\bweather\b.{0,200}\b(?:today|tomorrow|now|like)\b|\bwhat(?:'s| is) (?:the )?(?:time|date|
    day)(?: is it)?(?: today| now)?\Z|
    what (?:time|day) is it|\bignore (?:the document|all previous)|\bnot from the document\b|
    \b(?:latest|today's) news\b|\bright now\b.{0,200}\bprice|\bprice right now\b|
    \A(?:who should i vote|do you believe in|am i pretty|should i (?:break up|marry|buy)|what should i (?:have for|
    eat|wear)|i have a headache|
    my (?:wifi|phone|computer|laptop))|\bmeaning of life\b|\bsquare root of\b|what(?:'s| is) \d+ (?:times|plus|minus|
    x) \d+|
    how did the stock market|\bworld cup\b.{0,200}\bwon\b|who won the world cup|what(?:'s| is) another word for|
    \Aspell \w+\Z|let's play|random number|your favou?rite"""
_SUMMARY = r"""\A(?:please |can you |could you |give me |i want |i need |what(?:'s| is) |write )*(?:an? |the |
    your )?(?:very |quick |
    short |brief |one-paragraph )*(?:summar(?:y|ise|ize|ies)|tl;?dr|gist|overview|abstract|synopsis|outline|recap|
    digest)\b|
    \bsum(?:med)?(?: \w+)? up\b|\bsummari[sz]e|\b(?:in (?:short|brief|a nutshell|a few (?:words|sentences)))\b|
    \b(?:main|key|central|most important|principal|core|chief)
    (?: (?:main|key|central))? (?:points?|ideas?|findings?|messages?|takeaways?|thoughts?|lessons?|facts?|themes?|
    arguments?|
    conclusions?|aspects|insights|topics?|advice|contents?|rules|proposals?|concepts?)\b|
    \bwhat(?:'s| is| was)(?: all)? (?:this|it|the|that) ?(?:whole |entire )?(?:document|text|book|report|paper|
    article|chapter|page|
    file|speech|address|story|novel|guide|manual|handbook|proposal|essay|contract|agreement|opinion|case|rfc|pep|
    standard|
    specification|section|post|memo|letter|decision|judg(?:e)?ment|ruling|\w+ \w+)? ?(?:all )?about(?: (?:overall|
    in general|
    exactly|in plain words))?(?:,? and .*)?\Z|\bwhat(?:'s| is) this (?:\w+ )?for\Z|\bwhat are th(?:is|ese|
    ose) (?:\w+ )?\w+ about\Z|\bessentials\b|\bnutshell\b|
    \bwhat (?:will|do|can|should) i (?:learn|remember|take away)\b|\bboil .{0,200} down\b|
    \bwhat(?:'s| is) (?:in|the (?:content|subject|topic|theme|plot|story|message|purpose|point|aim|goal|
    scope) of) (?:this|the)\s
    (?:whole )?(?:document|text|book|report|paper|article|chapter|page|file|speech|guide|manual|handbook|proposal|
    contract|novel)|
    \bwhat (?:does|do|did) (?:this|the|it)\s?(?:whole )?(?:document|text|book|report|paper|article|chapter|page|file|
    speech|guide|
    manual|handbook|proposal|contract|agreement|opinion|rfc|pep|standard|author|court)?\s?(?:mainly |mostly |
    basically |really |
    overall )*(?:cover|propose|describe|discuss|deal with|talk about|treat|conclude|argue|explain|document|say overall|
    recommend overall|contain)(?: overall| in general| in short)?\Z|
    \bhow (?:does|did) (?:it|the (?:story|book|novel|case|document|speech)) (?:end|begin|start)\b|\bkey takeaway|
    \bhighlights\b|
    \bwhat (?:are|were) (?:the )?(?:conclusions?|findings|results)\Z|\A(?:conclusions?|results?|
    introduction)(?: section)?\Z|
    \bdescribe (?:this|the) (?:document|book|report|text|file)\b|\bwhat (?:kind|sort) of (?:document|text|book|
    file) is"""
_SEVERAL = r"""\A(?:please |can you |could you )*(?:list|enumerate|name (?:all|the|some|three|two|four|five)|
    give me (?:all|a list|the list|
    some examples))\b|\b(?:pros and cons|advantages and disadvantages|arguments (?:for|against)|for and against|
    strengths and weaknesses|steps (?:to|in|for|of)|what are the steps|which steps)\b|
    \bwhat (?:does (?:it|this|the (?:document|text|book|report|paper|author))) say (?:about|on)\b|
    \b(?:all|every) (?:the )?(?:requirements|conditions|exceptions|examples|reasons|risks|options|types|kinds|
    mentions)\b|
    \bwhat (?:are|were) (?:all |some of )?(?:the |its |their )?(?:various |different |main |key |possible |major |
    other |\w+ )?
    (?:requirements|conditions|exceptions|examples|reasons|risks|options|types|kinds|benefits|advantages|disadvantages|
    drawbacks|limitations|recommendations|alternatives|goals|objectives|criteria|challenges|problems|dangers|
    responsibilities|
    principles|features|components|stages|phases|causes|effects|consequences|arguments)\b(?! of using)|
    \A(?:requirements|conditions|exceptions|benefits|advantages|disadvantages|drawbacks|limitations|recommendations|
    alternatives|pros|cons)\b|\b(?:vs\.?|versus)\b|\Acompare\b|\btell me (?:about|everything)\b"""


def _compiled(pattern: str) -> re.Pattern[str]:
    """Written over several lines: line breaks and what stands before a line mean nothing, single spaces do."""
    return re.compile(re.sub(r"\n\s+", "", pattern))


_WHOLE = ((RequestKind.SOCIAL, _compiled(_SOCIAL)), (RequestKind.MORE, _compiled(_MORE)))
_PART = tuple((kind, _compiled(pattern)) for kind, pattern in (
    (RequestKind.ABOUT_APP, _ABOUT_APP), (RequestKind.OUTSIDE, _OUTSIDE), (RequestKind.SUMMARY, _SUMMARY),
    (RequestKind.TASK, _TASK), (RequestKind.SEVERAL, _SEVERAL)))
_ENGLISH = frozenset(
    "the of and to in is are was were what who when where why how which does do did for on with that this it by "
    "from at an "
    "as be can should must a about not or has have had if there any me my you i tell many much will say said".split())
_FOREIGN = frozenset(
    "der das und ist nicht ein eine einen für mit von wie warum wann wer welche welcher welches sind wird werden "
    "über auf dem "
    "den des zu im le les des est une un dans pour qui que quoi quel quelle quels comment pourquoi où quand avec "
    "sur ce cette "
    "el los las una por qué cómo cuándo dónde quién cuál para con del es está son il lo gli che cosa perché come "
    "quando dove "
    "chi della di da het een van wat hoe waarom wanneer wie zijn het o os as um uma porque quem onde não em do da "
    "dos på och "
    "att som är vad hur varför när och jest nie co jak dlaczego kiedy kto gdzie worum geht es dieses dokument bitte "
    "auf deutsch".split())


def request_kind(text: str) -> RequestKind:
    """What a line wants. Without history: "why?" is a question like others."""
    line = " ".join(text.lower().replace("’", "'").split()).strip(" .!?…,")
    if not any(character.isalnum() for character in line):
        return RequestKind.SOCIAL
    for kind, pattern in _WHOLE:
        if pattern.fullmatch(line):
            return kind
    for kind, pattern in _PART:
        if pattern.search(line):
            return kind
    return RequestKind.LANGUAGE if _foreign(line) else RequestKind.SENTENCE


def _foreign(line: str) -> bool:
    """Whether it is written in another language than English, by its script or its small words."""
    letters = [character for character in line if character.isalpha()]
    if sum(ord(character) > 0x24F for character in letters) * 2 > len(letters):
        return True
    words = re.findall(r"[^\W\d_]+", line)
    foreign = sum(word in _FOREIGN for word in words)
    return foreign >= 2 and foreign > sum(word in _ENGLISH for word in words)
