"""The rules by which a server's words are looked at: a table, and nothing that acts.

Pure. A row says where it looks and how grave a hit is there, the words that must be in a text before its pattern is tried,
the pattern or the function, what a hit means, and what to do. The same words weigh differently in different places: a tool's
description has no business with "every future session", and a fetched page may quote it.

Patterns run on the plain form of a text (`scan.py`): hidden characters taken out, lookalike letters and case folded, blanks
single. Gaps are bounded, so time grows with the length of the text and not with its square. A finding is a reason to ask, not
a proof; docs/guides/threats.md has the rates of false alarms.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

from .disguises import may_be_disguised, readings
from .hidden_text import HiddenKind, find_hidden, strip_hidden
from .scan_languages import ADDRESSED_ELSEWHERE, LIFTED_ELSEWHERE, TALK_ELSEWHERE, in_other_languages
from .scan_lexicon import find_overrides, find_secrecy, find_secrets

Place = Literal["tool", "prompt", "resource", "result", "error", "elicitation", "sampling", "arguments"]
Severity = Literal["note", "warn", "ask"]
"""note: is only listed. warn: is shown, and tightens the flow of data. ask: a person is asked before a call."""


class ScannedText(NamedTuple):
    """A text as it came, and its plain form."""

    raw: str
    plain: str


class ScanRule(NamedTuple):
    """One row: where to look, for what, and what a hit means."""

    id: str
    where: Mapping[Place, Severity]
    look: re.Pattern[str] | Callable[[ScannedText], Iterator[str]]
    """A pattern for the plain text; or a function that yields the excerpts that hit."""
    message: str
    remedy: str
    words: tuple[str, ...] = ()
    """The pattern is tried only on a text with one of these in its plain form."""
    may_hit: Callable[[ScannedText], bool] | None = None
    """For a function that looks at so much of a text and no further: whether there is anything in it, wherever that stands."""


def _severities(
    definition: Severity | None, content: Severity | None, question: Severity | None
) -> dict[Place, Severity]:
    """By place: definitions; results and errors; questions of servers, and what they send to our model."""
    places: dict[Place, Severity | None] = {
        **dict.fromkeys(("tool", "prompt", "resource"), definition),
        **dict.fromkeys(("result", "error"), content),
        **dict.fromkeys(("elicitation", "sampling"), question),
    }
    return {place: severity for place, severity in places.items() if severity is not None}


_EVERYWHERE: Final = _severities("ask", "ask", "ask")
_ARGUMENTS: Final[dict[Place, Severity]] = {"arguments": "ask"}

# --- what nobody sees ------------------------------------------------------------------------------------------------

_MANY: Final = 8  # blanks without width in a row, or selectors: a letter takes that many, and typography takes one


def _hidden(kind: HiddenKind, least: int = 1, most: int = 1 << 62) -> Callable[[ScannedText], Iterator[str]]:
    def look(text: ScannedText) -> Iterator[str]:
        for run in find_hidden(text.raw):
            if run.kind == kind and least <= run.length < most:
                yield run.says or f"{run.length} hidden characters at {run.start}"

    return look


# --- text in disguise ------------------------------------------------------------------------------------------------

_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{32,65536}={0,2}")
_BASE32: Final = re.compile(r"(?<![A-Z0-9])[A-Z2-7]{40,65536}={0,6}(?![A-Za-z0-9])")
_HEX: Final = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}:?){24,32768}(?![0-9A-Fa-f])")
_ESCAPES: Final = re.compile(r"(?:\\x[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|&#x?[0-9A-Fa-f]{2,4};){12,}")
_ESCAPE: Final = re.compile(r"(?:\\x|\\u00|%)([0-9A-Fa-f]{2})|&#x([0-9A-Fa-f]{2,4});|&#([0-9]{2,4});")
_LEAST_PERCENTS: Final = 4  # a link has one or two
_LONGEST_LINK: Final = 8192  # characters
_LONG_WORD: Final = 32  # letters
_MOST_DECODED: Final = 64  # candidates in a text; more is data, and data of that kind is not read by a model


def _decoded(text: str) -> Iterator[str]:
    # No ordinary word is as long, and splitting a text is cheaper than trying patterns at each of its letters.
    long_words = [word for word in text.split() if len(word) >= _LONG_WORD]
    for word in long_words[:_MOST_DECODED]:
        if word.count("%") >= _LEAST_PERCENTS:
            yield unquote(word[:_LONGEST_LINK])
        for pattern, decode in (
            (_BASE64, _from_base64),
            (_BASE32, _from_base32),
            (_HEX, _from_hex),
            (_ESCAPES, _from_escapes),
        ):
            for match in islice(pattern.finditer(word), _MOST_DECODED):
                if plain := decode(match[0]):
                    yield plain


def _may_be_encoded(text: ScannedText) -> bool:
    return (
        any(len(word) >= _LONG_WORD for word in text.raw.split())
        or may_be_disguised(text.plain)
        or _DECODE_AND_OBEY.search(text.plain) is not None
    )


def _from_base64(text: str, is_outer: bool = True) -> str:
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        raw = base64.b64decode(text[: len(text) // 4 * 4], validate=True)
        if is_outer and (inner := _BASE64.fullmatch(raw.decode("latin-1"))):
            return _from_base64(inner[0], is_outer=False)
        return _readable(raw)
    except (binascii.Error, ValueError):
        return ""


def _from_base32(text: str) -> str:
    text = text.rstrip("=")
    try:
        return _readable(base64.b32decode(text[: len(text) // 8 * 8]))
    except binascii.Error:
        return ""


def _from_hex(text: str) -> str:
    return _readable(bytes.fromhex(text.replace(":", "")))


def _from_escapes(text: str) -> str:
    codes = [
        int(match[1] or match[2], 16) if match[1] or match[2] else int(match[3]) for match in _ESCAPE.finditer(text)
    ]
    return "".join(map(chr, codes))


def _readable(raw: bytes) -> str:
    """The bytes as text, if they are words: mostly letters, with blanks between them."""
    text = raw.decode("utf-8", "ignore")
    letters = sum(sign.isalpha() or sign == " " for sign in text)
    return text if len(text) >= 0.95 * len(raw) and letters >= 0.7 * len(text) and " " in text else ""


def _encoded_instructions(text: ScannedText) -> Iterator[str]:
    for decoded in (*_decoded(text.raw), *readings(text.plain)):
        plain = " ".join(decoded.lower().split())
        if _IN_DISGUISE.search(plain) or any(pattern.search(plain) for pattern in _ORDERS):
            yield decoded[:200]
    if (match := _DECODE_AND_OBEY.search(text.plain)) is not None:
        yield match[0]


# --- words for the model ---------------------------------------------------------------------------------------------

_OVERRIDE: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|do not follow|don't follow)\b[^.\n]{0,40}?"
    r"\b(?:previous|prior|above|earlier|preceding|all (?:other|your)|your|system|existing|original|safety)\s"
    r"(?:\w+\s){0,2}?(?:instructions?|prompts?|rules|directives|guidelines|guidance|guardrails|policies|restrictions|system prompt|training)\b"
    r"|\b(?:ignore|disregard|overrule) the (?:user|human|person)(?:'s (?:instructions?|request|wishes))? and\b"
    r"|\b(?:safety|previous|prior|other) (?:\w+ )?(?:rules|instructions?|guidelines|policies|restrictions) (?:are|is) (?:now )?(?:void|suspended|disabled|lifted|revoked)\b"
    r"|\byou are now (?:in )?(?:\w+ ){0,2}(?:mode|dan|unrestricted|jailbroken)\b"
    r"|\bnew (?:system )?(?:instructions?|directives?) (?:from|follow|supersede|override)"
    r"|\b(?:ignore|disregard|forget) [^.\n]{0,30}\b(?:instructions?|rules|guidelines|directives|guidance) (?:that )?you (?:were|have been|had been) given\b"
    r"|\b(?:ignore|disregard|forget) (?:all of |everything )?(?:the )?(?:above|preceding)\b[,;:]? (?:and|but) (?:instead|do|say|write|send|follow|only)\b"
    r"|\b(?:you|who|that|which) (?:now )?(?:has|have|know|knows|obeys?|follows?) no (?:\w+ )?(?:policies|restrictions|guidelines|guardrails|content filters?|rules)\b(?= (?:and|or|but)\b|[,.;!]|$)"
    r"|\b(?:answer|respond|comply|reply|act)\b[^.\n]{0,40}\bwithout (?:any )?(?:filters?|restrictions|guardrails|safeguards|refusals?)\b"
    r"|\byour (?:real|actual|true) (?:task|job|goal|mission|instructions?) (?:is|are)\b"
    r"|\bfrom (?:here|now|this (?:point|moment)) on(?:wards?)?,? you (?:are|act|behave|operate|answer|respond|obey|shall|will (?:act|be|behave|obey))\b"
    r"|\byou (?:must |will |shall )?obey\b[^.\n]{0,40}\b(?:above|over|before|instead of|rather than)\b"
    r"|\b(?:pretend|imagine|suppose|assume|let's say)\b[^.\n]{0,10}\byou(?:'re| are| were)\b[^\n]{0,200}?"
    r"\b(?:passwords?|secrets|id_rsa|private keys?|credentials|restrictions|\.env|without asking|bypass|delete|wipe)\b"
    r"|\bin this (?:simulation|game|role[- ]?play|thought experiment)\b[^\n]{0,160}?\b(?:no harm|allowed|passwords?|secrets|delet\w+|emptying|wip\w+|eras\w+)\b",
    re.M,
)


def _elsewhere(
    pattern: re.Pattern[str] | None, find: Callable[[str], Iterator[str]] | None = None
) -> Callable[[ScannedText], Iterator[str]]:
    """Phrases by a pattern, ideas by the lexicon; in letters as they came, for folding would spoil those not Latin."""

    def look(text: ScannedText) -> Iterator[str]:
        lower = " ".join(strip_hidden(text.raw).lower().split())
        if find is not None:
            yield from find(lower)
        if pattern is not None and in_other_languages(lower):
            yield from (match[0] for match in pattern.finditer(lower))

    return look


_TURN_MARKS: Final = re.compile(
    r"<\|(?:im_start|im_end|system|user|assistant|start_header_id|eot_id|endoftext)\|>"
    r"|<<sys>>|\[/?inst\]|</?(?:system_prompt|system-reminder|system_message|assistant|human_turn|function_calls|tool_results?|untrusted)\b[^<>]{0,40}>"
)
_MOST_QUOTED: Final = 3  # in a part of a text; a fourth says nothing new
_PLAYED_TURNS: Final = re.compile(
    r"^[ \t]{0,4}(?:human|user) ?:[^\n]{1,500}\n(?:[^\n]{0,500}\n){0,20}?[ \t]{0,4}(?:assistant|ai) ?:"
    r"|^#{2,4} ?(?:instruction|system|human|user)s? ?:?[ \t]*\n(?:[^\n]{0,500}\n){1,20}?#{2,4} ?(?:response|assistant) ?:?[ \t]*$",
    re.I | re.M,
)


def _played_turns(text: ScannedText) -> Iterator[str]:
    """Looked for in the text as it came: the plain form has no lines."""
    if any(mark in text.plain for mark in ("assistant", "ai:", "# response", "#response")):
        for match in islice(_PLAYED_TURNS.finditer(text.raw), _MOST_QUOTED):
            yield " ".join(match[0].split())[:200]


_FORGED: Final = re.compile(
    r"(?:^|[\s=#*\[(<-])(?:END|BEGIN(?:NING)?|START) OF (?:THE )?(?:TOOL|FUNCTION|SEARCH|WEB|DOCUMENT|USER|SYSTEM|EXTERNAL)[ _](?:OUTPUT|RESULTS?|RESPONSES?|CONTENT|INPUT|DATA|PROMPT|MESSAGE)"
    r"|\b(?:BEGIN|END)(?: [A-Z]{3,12}){0,2} (?:CONTEXT|INSTRUCTIONS|DIRECTIVES?|OVERRIDE|SYSTEM PROMPT)\b"
    r"|\b(?i:new|next|updated) (?i:task|instructions?|request|command|order)s? (?i:from|by) (?i:the |your )?(?i:user|human|operator|developer|administrator|system)\b ?(?i::|is\b|says?\b|-)"
    r"|\b(?i:function|tool)[ -](?i:call )?(?i:results?|outputs?) ?\(\w+\) ?:|\[(?i:tool(?: call)?): ?\w+\]"
)


def _forged_results(text: ScannedText) -> Iterator[str]:
    """Looked for in the text as it came: capitals tell a mark from a sentence."""
    if any(word in text.plain for word in ("tool", " of ", "function", "from", "begin ", "end ")):
        for match in islice(_FORGED.finditer(text.raw), _MOST_QUOTED):
            yield " ".join(match[0].split())


_ESCAPE_SEQUENCE: Final = re.compile("(?:\x1b[\\[\\]PX^_]|[\x90\x98\x9b\x9d-\x9f])[^\n]{0,40}")


def _escape_sequences(text: ScannedText) -> Iterator[str]:
    for match in islice(_ESCAPE_SEQUENCE.finditer(text.raw), _MOST_QUOTED):
        yield ascii(match[0])[1:-1]


_MARKUP: Final = re.compile(
    r"<(important|critical|secret|hidden|system|instructions?|admin|override|mandatory|priority)>"
)
_READERS: Final = (
    r"(?:the |any |all )?(?:ai|a\.i\.|llm|assistant|ai assistant|agent|ai agent|model|language model|chatbot|claude|gpt|copilot"
    r"|gemini|cursor)s?"
)
_ADDRESSED: Final = re.compile(
    r"\b(?:system|hidden|special|secret|internal|important) (?:note|message|notice|instructions?|directive)s? (?:for|to) "
    + _READERS
    + r"\b|\b(?:assistant|agent|ai|llm|model) (?:instructions?|directives?|only) ?(?::|#|\*\*)"
    r"|\"_?(?:agent|assistant|ai|llm|model)_(?:directive|command|order)s?\" ?:"
    r"|\b(?:ai agents?|ai assistants?|llms?|language models?|chatbots?) (?:that (?:are )?)?(?:processing|reading|parsing|visiting|summari[sz]ing) this (?:page|document|file|text|issue|e-?mail|message|content)\b"
    r"|\bif you are an? (?:ai|llm|large language model|language model|ai (?:assistant|agent|model|system)|chatbot|assistant|agent) (?:that (?:is )?|which (?:is )?|and )?(?:reading|processing|parsing|going through|looking (?:at|through)|summari[sz]ing|handling|working (?:on|through))\b"
    r"|\bif you are an? (?:ai|llm|large language model|language model|ai (?:assistant|agent|model)|chatbot),? (?:then )?(?:stop|ignore|open|send|call|run|execute|fetch|visit|post|delete|upload|reply|respond)\b"
    r"|\b(?:if you are an?|as an?|dear|hey|hello) (?:ai|llm|large language model|ai assistant|ai agent|claude|gpt|copilot|gemini),? (?:reading|processing|you must|please)"
)
_NOTE: Final = re.compile(
    r"\b(?:note|instructions?|message|attention|reminder|notice),? (?:for|to) " + _READERS + r"\b ?[:,-]"
    r"|\b(?:any|every|each) (?:ai|llm|assistant|agent|model|bot|chatbot) (?:that|which|who) (?:reads|sees|processes|parses|visits|finds)\b"
    r"|(?:^|[.!?] )(?:assistant|agent|bot|ai|llm), (?:please|kindly|you must|now)\b"
    r"|\byou, (?:the|an?|as an?) (?:ai|llm|assistant|agent|language model|model)\b|\bfor (?:the |any |all )?(?:ai|llm|model|assistant|agent|language model)s? only\b"
    r"|\b(?:ai|llm|language) (?:models?|assistants?|agents?)\b[^.\n]{0,60}\b(?:must|have to|are (?:required|obliged|instructed) to) (?:always|never|first|only) "
)
_PERSON: Final = r"(?:(?:the |its |your |their |our )?(?:users?|persons?|humans?|owners?|customers?|operators?|people)|anyone|anybody)"
_SECRECY: Final = re.compile(
    r"\b(?:do not|don't|never|must not|should not|need not|without|no need to|avoid|not something to|rather than something to)"
    r" (?:ever )?(?:tell|telling|mention|mentioning|inform|informing|reveal|revealing|notify|notifying|alert|alerting|disclose"
    r"|disclosing|discuss|discussing|raise|raising|be mentioned|be shown|be disclosed|be discussed)\b"
    r"(?!ed)(?![^.\n]{0,12}(?:id|ids|uuid|tool names?|internal names?)\b)"
    r"[^.\n]{0,60}?\b(?:the user|users?|human|(?:this|it|that|these) (?:in|to|with)|your (?:reply|response|answer)|in the user)\b"
    r"|\b(?:not|nothing|no action|never|isn't|is not) [^.\n]{0,30}?(?:that )?(?:needs? to be|to be|be|been) "
    r"(?:discussed|mentioned|shown|disclosed|reported|raised)\b"
    r"(?: (?:with|to|in)[^.\n]{0,20}\b(?:user|reply|response|answer)|(?= ?(?:[.<\n]|$)))"
    r"|\bmust (?:stay|remain|be kept) (?:hidden|secret|invisible|unknown) (?:from|to) (?:the )?(?:user|human)"
    r"|\bwithout (?:the )?(?:user|human|person|their|owner)(?:'s|s')? (?:\w+ )?(?:knowledge|knowing|noticing|being told)\b"
    r"|\bsay nothing (?:about|to)\b|\b(?:keep|kept) (?:this|it) (?:secret|hidden) from\b"
    r"|\bhide (?:this|it|that|these)\b[^.\n]{0,40}\bfrom (?:the )?(?:user|human)"
    r"|\b(?:do|does|should|must|need|will|would|may|shall)(?:n't| not| never) (?:\w+ ){0,2}?(?:bother|trouble|burden|disturb|worry) "
    + _PERSON
    + r"\b(?! (?:if|unless|when|until))|\b"
    + _PERSON
    + r" (?:\w+ ){0,2}?(?:needs?|should|must|shall|ought|has)(?: not|n't| never)(?: to)?(?: ever)? (?:hear|find out|learn|know|notice|be (?:told|informed|made aware|notified))"
    r" ?(?:(?:of|about) (?:it|this|that|these|anything|any)\b|[.;,<]|$)"
    r"|\b"
    + _PERSON
    + r"\b[^.\n]{0,30}\bnever (?:found out|finds? out|learns?|learned|hears?|heard|notices?|noticed|knew) ?(?:that|of|about|[.;,<]|$)"
    r"|\bwithout (?:ever )?(?:mentioning|telling|reporting|disclosing|announcing) (?:it|this|that|any of (?:it|this))\b(?= ?(?:to|in|[.;,<]|$))"
    r"|\bbefore (?:anyone|anybody|someone|somebody|the (?:user|person|human|owner)) (?:gets? asked|is asked|gets? told|is told|notices|finds out|can (?:object|stop|notice|react))\b"
    r"|\b(?:do not|don't|never) (?:bring up|speak of|refer to) (?:that|this|it|the fact)\b"
    r"|\b(?:do not|don't|never) (?:report|announce) (?:it|this|that)\b(?= ?(?:to (?:the user|anyone|anybody)|[.;,<]|$))",
    re.M,
)
_STANDING: Final = re.compile(
    r"\b(?:remember|persist|apply|append|include|repeat|begin|check in|execute|do this|follow)\b[^.\n]{0,80}?"
    r"\b(?:(?:every|each|all|any) (?:future|subsequent|following|later|other)|(?:every|each)(?= (?:reply|response|answer|session|conversation)))"
    r" (?:\w+ )?(?:session|reply|replie|response|conversation|tool call|task|answer|interaction|message|chat)s?\b(?!['\u2019])"
    r"|\bthe next time (?:the |that )?(?:user|person|human|somebody|someone|anybody|anyone|they|he|she|you are) \w+\b[^\n]{0,60}?, (?:\w+ly )?(?:call|run|send|create|write|read|delete|post|upload|forward|use|execute|open|publish)\b"
    r"|\bremember this (?:instruction|rule|directive)s?\b|\b(?:instructions?|rules?) permanently\b"
    r"|\b(?:for|on|in|before) every (?:task|reply|response|session|tool call) in this (?:session|conversation|workspace)\b"
    r"|\bbefore (?:answering any|any other|each) (?:request|tool call|task)\b[^.\n]{0,60}\b(?:read|send|call|include|check in)\b"
)
_OTHER_TOOLS: Final = re.compile(
    r"\b(?:when(?:ever)?|every(?: time)?|each(?: time)?|any(?: time)?|all|before|after|if)\b[^.\n]{0,60}?"
    r"(?:\b(?:call|calling|use|using|invoke|invoked|invoking|issued?|send|sending)\b[^.\n]{0,30}?"
    r"`?\b[a-z0-9]+(?:[_.-][a-z0-9]+)+\b|`?\b[a-z0-9]+(?:[_.-][a-z0-9]+)+\b`?[^.\n]{0,20}?\b(?:call|called|invoked|used|runs?|tool)\b)"
    r"[^\n]{0,160}?\b(?:must|always|also|shall|required to|have to|bcc|add|include|set)\b[^\n]{0,80}?"
    r"(?:\bbcc\b|\bcc\b|\brecipient\b|\w@[a-z0-9-]{1,63}\.)"
)
# What is put before every command of the model: it need not name another tool.
_PREFIXES: Final = re.compile(
    r"\b(?:prefix|prepend|precede|begin|start|wrap) (?:each|every|all|any) (?:\w+ ){0,2}(?:commands?|quer(?:y|ies)|calls?|requests?|scripts?)\b[^.\n]{0,40}?\bwith\b"
    r"|\bprepend [^\n]{1,80} to (?:each|every|all|any) (?:\w+ ){0,2}(?:command|query|call|request|script)"
)
_REDIRECT: Final = re.compile(
    r"\b(?:add|include|put|set|use|bcc|cc|send|forward|mirror|copy)\b(?>[^.\n]{0,40}?\bbcc\b)[^\n]{0,40}?\w@[a-z0-9-]{1,63}\."
    r"|\bbcc (?:to )?[\w.+-]{1,64}+@[a-z0-9-]{1,63}\.[a-z]+\b[^.\n]{0,40}\b(?:every|each|all|any)\b"
    r"|\bbcc=\[|\bhidden (?:bcc|cc|recipient)\b"
)
_PREFERENCE: Final = re.compile(
    r"\bprefer (?:it|this|the \S+ tool) (?:tool )?(?:over|to|instead of) (?:any|all|every|the) (?:other )?"
    r"|\balways prefer the \S+\b|\b(?:use|call) this (?:tool )?(?:instead of|rather than) (?:any|all|every) other\b"
    r"|\bsupersedes (?:every|all|any) other\b|\b(?:other|all other|any other) (?:[a-z-]+ ){0,2}tools? (?:are|is|return|give) (?:deprecated|broken|unsafe|insecure|forbidden|obsolete|outdated|unreliable|wrong|fake)\b"
    r"|\balways (?:choose|pick|select|use|call|try) this (?:one|tool|server) (?:first|before)\b"
)
_PROSELYTE: Final = re.compile(
    r"\balways prefer the \S+ (?:tool|server)\b|\bspawn (?:a|an|another) (?:sub-?agent|agent)\b"
)

_READS_FIRST: Final = re.compile(
    r"\byou must (?:first |always |also |then |immediately )*(?:read|access|retrieve|fetch|load|include|send|check|reveal|output|append)\b"
    r"|\bbefore (?:providing|returning|answering|giving|responding)\b[^.]{0,60}?\byou must\b"
)
_COVERT: Final = re.compile(
    r"\b(?:silently|quietly|secretly|covertly|discreetly|invisibly)\b[^.]{0,30}?"
    r"\b(?:upload|send|forward|copy|delete|post|email|transmit|record|include|add|call|read|store|create|make|run|execute|publish|push|commit|insert|append)\w{0,20}\b"
)
_TALK: Final = (
    r"\b(?:(?:everything|anything|whatever|all) (?:that )?(?:the (?:user|person|human)|they|he or she) (?:has |have )?(?:typed|said|written|asked|wrote)|context window|earlier messages|conversation so far|text of the conversation|whole conversation|(?:user's|last|previous) (?:\w+ ){0,3}(?:messages|prompts?|questions)"
    r"|your (?:full |entire |complete )?(?:instructions|system prompt|context)|its (?:full |entire |complete )?(?:instructions|system prompt))\b"
)
_FORWARDS: Final = re.compile(
    r"\b(?:forward|send|post|upload|transmit|report|mirror)(?:s|ed|ing)?\b[^.]{0,50}?\b(?:user's|conversation|last message|chat|prompts?|history)\b"
    r"[^.]{0,60}?(?:https?://|\w@)"
    r"|\b(?:forward|send|post|upload|transmit|copy|transfer|write|submit)\b[^.\n]{0,60}?\b(?:the user|user's|their)\b[^.\n]{0,60}?(?:\bto https?://|\w@[a-z0-9-]{1,63}\.|\bpublic\b)"
    r"|\b(?:append|add|send|attach|include|put|write|encode|paste)\b[^.\n]{0,40}?"
    + _TALK
    + r"[^\n]{0,60}?(?:https?://|\w@[a-z0-9-]{1,63}\.)"
    r"|\b(?:user's|their) (?:calendar|contacts|inbox|e-?mails?|files|photos|messages|address book|notes)\b[^.\n]{0,40}\b(?:into|to|in) (?:a|the) (?:\w+ )?(?:gist|paste|public \w+)\b"
)
_PAYS: Final = re.compile(
    r"\b(?:transfer|wire|send|pay|move)\b[^.\n]{0,40}\b(?:money|balance|funds|savings|\d[\d.,]* ?(?:eur|usd|gbp|chf|btc|eth|euros?|dollars?))\b[^.\n]{0,40}"
    r"\b(?:to (?:the )?(?:account|iban|wallet|address)\b|to [a-z]{2}\d{2}[ \d]{8})"
)
_INSERTED: Final = re.compile(
    r"\b(?:include|add|append|insert|output)\b[^.]{0,20}?\b(?:the following|this)\b[^.]{0,20}?\b(?:message|text|link|sentence|string|paragraph)\b"
    r"[^.]{0,60}?\byour (?:final )?(?:response|reply|answer|output)"
    r"|\bfrom now on\b[^.]{0,60}?\byour (?:\w+ )?(?:answers?|repl(?:y|ies)|responses?|messages?|output)\b"
)

_AUTHORITY: Final = re.compile(
    r"\b(?:user|administrator|admin|owner|operator|developer|system)s?\b[^.\n]{0,20}\b(?:has|have)\b[^.\n]{0,20}\b(?:authori[sz]ed|pre-?approved|approved|granted|raised|lifted)\b"
    r"[^.\n]{0,20}\b(?:all|every|any|your|full)\b[^.\n]{0,30}\b(?:operations?|actions?|commands?|calls?|privileges|permissions|requests?|access|restrictions)\b"
    r"|\b(?:you|the (?:assistant|agent|model)) (?:no longer|do not|don't|does not) need (?:any |the )?(?:\w+ )?(?:permission|confirmation|approval|consent)\b[^.\n]{0,20}\b(?:from|of|to|for|by)\b"
    r"|\b(?:safety|security|permission) (?:checks?|rules?|controls?|filters?|guardrails?) (?:have|has|are|is) (?:now )?(?:been )?(?:(?:turned|switched) off\b|off for\b)"
    r"|\b(?:guardrails?|safeguards?|(?:all|your|these|the|safety) (?:restrictions|guidelines|rules|policies|safeguards))\b[^.\n]{0,20}\b(?:are|were|is|have been|has been) (?:now |hereby )?"
    r"(?:lifted|removed|void|suspended|cancell?ed|annulled|revoked|disabled)\b[^.\n]{0,30}\b(?:chat|session|conversation|now|you|from now|remainder)\b"
    r"|\b(?:notice|message|directive|order|announcement) from (?:the )?(?:anthropic|openai|deepmind)(?:'s)?\b[^.\n]{0,60}\b(?:agents?|assistants?|models?|security|safety)\b"
    r"|\b(?:agents?|assistants?|models?) (?:shall|must|are (?:required|obliged) to|have to) (?:pass|send|submit|provide|include|report|hand over)\b[^.\n]{0,40}\b(?:api keys?|tokens|passwords?|credentials|secrets)\b"
    r"|\bproceed without (?:asking|confirmation|permission|approval)\b(?=\s?[.!<]|$)"
    r"|\b(?:this is|i am|we are|on behalf of) (?:the )?(?:anthropic|openai|deepmind|your (?:developer|creator|administrator))\b(?:'s)?[^\n]{0,120}?\b(?:you (?:are|must|should|have)|required|reveal|provide|output|send)\b"
    r"|\byou (?:may|can|are (?:now )?(?:allowed|free|permitted|authori[sz]ed|cleared) to)\b[^.\n]{0,40}\b(?:tools?|calls?|commands?|payments?|operations?|actions?)\b[^.\n]{0,20}"
    r"\bwithout (?:asking|(?:\w+ )?(?:approval|confirmation|permission|consent))\b"
    r"|\b(?:confirmation|approval|permission|consent) (?:dialogs?|prompts?|checks?|requests?|questions?|steps?) (?:may|can|should|must|are to|have to) (?:now )?be (?:skipped|bypassed|ignored|omitted|suppressed)\b(?! (?:with|by|using|via|if|when))"
    r"|\byour (?:permissions?|privileges|rights|access) (?:were|was|are|is|have been|has been) (?:now )?(?:raised|extended|elevated|upgraded|increased)\b"
    r"|\b(?:needs?|requires?|with) no (?:further|more|additional|other) (?:questions?|confirmations?|approvals?|consent)\b"
    r"|\[(?:system|admin|administrator|moderator|root)(?: (?:message|note|notice|update|alert))[^\]\n]{0,40}\][^\n]{0,200}\b(?:credentials|passwords?|secrets|approved|granted|do not|you must|ignore|respond with)\b"
    r"|\[system\][^\n]{0,200}\b(?:without asking|run the|execute|do not ask|you must|ignore|send)\b",
    re.M,
)
_GIVES: Final = r"(?:pass|supply|include|provide|send|attach|hand over|hand|give|append|repeat|output|reveal|report|call|accompan\w+|attached|passed|included|supplied)"
_INNER: Final = (
    r"(?:system prompt|(?:full|complete|entire|original|initial|your|its|the user's|user's)(?: full| complete)? (?:instructions|prompts?|conversation|messages?|history|context|tokens?|credentials)"
    r"|conversation (?:so far|history)|(?:every|each|all) (?:the )?(?:messages?|prompts?)|hidden instructions|environment variables|(?:connected|other) servers|credentials|(?:access |api )?tokens|api keys)"
)
_PROTOCOL: Final = re.compile(
    r"\b(?:part of|per|under|according to|required by|by) (?:the |our )?(?:mcp|model context protocol|protocol|specification|handshake|policy)\b[^.\n]{0,140}?\b"
    + _GIVES
    + r"\b[^.\n]{0,80}?\b"
    + _INNER
    + r"|\b(?:mcp|compliance|certification|audit(?:ing|s)?|security check|verification|protocol|specification|policy)\b[^\n]{0,100}?\b(?:must|has to|have to|obliged|requires?|required|hands? over)\b[^.\n]{0,100}?"
    + _INNER
)
_TAKES_OVER: Final = re.compile(
    r"\b(?:instead of|(?:route|redirect|send) (?:\w+ )?(?:requests?|calls?|traffic) (?:\w+ )?(?:through|to)) (?:this|our) (?:tool|server)\b"
    r"|\b(?:do not|don't|never|stop) us(?:e|ing) (?:the |any )?`?[\w-]+`? (?:tools?|server)s?\b[^.\n]{0,20}\b(?:any ?more|any longer|leak|compromised|insecure|unsafe|outdated)"
    r"|\ball (?:other )?(?:\w+ )?tools (?:except|but|other than) this\b|\bafter (?:any|every|each) (?:use|call) of `?\w+`?[^.\n]{0,30}\b(?:send|pass|give|forward)\b[^.\n]{0,30}\bthis tool\b"
    r"|\b(?:the )?(?:other|others|all others|all other|any other|alternative|alternatives|competing|remaining)\b (?:\S+ ){0,4}?(?:are|is|were|have been|has been|will|may|return|give) (?:\w+,? ){0,3}?"
    r"(?:deprecated|broken|unsafe|insecure|compromised|obsolete|outdated|unreliable|wrong|fake|switched off|retired|leak|steal)\b"
    r"|\beven (?:when|if|though) the (?:user|person|human) (?:\w+ )?(?:names?|asks? for|wants?|prefers?|requests?|mentions?|insists?|chose|chooses)\b[^.\n]{0,40}\b(?:other|another|different|else|tool|server)\b"
    r"|\b(?:ours|this one|this tool) is the only (?:safe|secure|working|correct|approved)\b"
    r"|\b(?:if|when|whenever|once|as soon as) (?:the |a )?(?:tool )?`?\w+_\w+`?(?: tool)?(?: of another server)? is (?:available|used|called|present|connected)\b[^.\n]{0,80}?\b"
    r"(?:call it|change|replace|first|also|instead|set|add)\b"
)
_DECODE_AND_OBEY: Final = re.compile(
    r"\b(?:decode|decrypt|unscramble)\b[^.\n]{0,60}\b(?:and|then)\b[^.\n]{0,20}\b(?:do (?:what|as)|follow|obey|execute|carry out|act on|run (?:it|them|what))\b"
)
_IN_DISGUISE: Final = re.compile(
    r"(?:reveal|show|print|repeat)(?:me)?(?:the|your)?(?:systemprompt|password|secretkey|privatekey)"
    r"|\bignore ?(?:all|your|the|any)? ?(?:previous|prior|earlier|above)|(?:ignore|disregard)(?:all|your|the)?(?:previous|prior|earlier|above|system)"
    r"|\b(?:read|send|post|upload|reveal|forward|copy|delete|steal)\b[^.\n]{0,60}\b(?:ssh keys?|private keys?|private messages|api ?keys?|passwords?|credentials|tokens?|system prompt|every file|all files|the user)\b"
)

# --- what is asked for -----------------------------------------------------------------------------------------------

_KEY_FILES: Final = (
    r"(?:(?:~|\$home|/root|/home/\w+)/?|(?<=/)|(?<![\w/]))\.(?:ssh|aws|gnupg|kube|docker|azure|config/(?:gcloud|gh|hub|op)|netrc|npmrc|pypirc|git-credentials|pgpass)\b"
    r"|\.(?:bash|zsh|sh|python|psql|mysql)_history\b|\bid_(?:rsa|ed25519|ecdsa|dsa)\b|(?<![\w/])(?:\S{0,200}/)?\.env\b|/etc/(?:passwd|shadow|sudoers)\b"
    r"|\b(?:credentials?|secrets?|key|keys|password) files?\b|\benvironment (?:values|secrets)\b|\bsecret\S{0,40}\.(?:txt|md|json|ya?ml)\b"
    r"|\b\S{1,60}secret\S{0,20}\.(?:txt|md|json|ya?ml)\b|\bmcp\.json\b|/config/database\.ya?ml\b"
)
_SECRET_FILE: Final = re.compile(
    r"\b(?:read|open|cat|load|reading|look(?:ing|s)? up|tak(?:e|es|ing)|fetch(?:es|ing)?|include|pass|attach|send|copy|upload|paste|contents? of|provide)\b(?>[^\n]{0,100}?(?:"
    + _KEY_FILES
    + r"))[^\n]{0,160}?\b(?:pass|include|send|sending|passing|attach|attaching|paste|parameters?|arguments?|field|argument of|upload|post|comment|metadata)\b"
    r"|\b(?:pass|include|send|attach|paste|put|copy|append|reply with|respond with|answer with)\b[^\n]{0,60}?\b(?:contents?|values?)\b[^\n]{0,40}?(?:"
    + _KEY_FILES
    + r")|\bcontents? of (?:the |any |a )?(?:file )?(?:"
    + _KEY_FILES
    + r")|(?:`\w+`|\b(?:argument|parameter|field)\b)[^\n]{0,30}\b(?:holds?|contains?|be|has|carr(?:y|ies)|filled)\b[^\n]{0,40}(?:"
    + _KEY_FILES
    + r")"
    r"|(?:" + _KEY_FILES + r")[^\n]{0,60}?\b(?:with|using) (?:the|its|their) (?:contents?|values?|text)\b"
    r"|\b(?:home (?:directory|folder)|(?:shell|browser|command) history|keychain|password manager|private messages)\b[^\n]{0,80}?"
    r"\b(?:supply|share|pass|attach|hand over|make it public)\b[^\n]{0,60}?(?:`\w+`|\b(?:argument|parameter|field|public|gist)\b)"
)
_OWNED: Final = r"\b(?:passwords?|secrets|private keys?|ssh keys?|credentials|(?:access |api )?tokens|api keys|keychain|cookies|hidden instructions)\b"
_OWNER: Final = r"\b(?:user's|of the (?:user|human|person|project)|person's|human's|they know|you know|from the (?:disk|environment|machine)|the (?:human|user|person) (?:has )?(?:typed|installed|said|wrote))\b"
_SECRET_VALUE: Final = re.compile(
    r"\b(?:include|pass|send|give|add|put|provide|attach|supply|insert|forward|share|hand)\b[^.\n]{0,20}\b(?:user's|person's|owner's|human's|customer's|developer's) (?:\w+ ){0,2}?(?:passwords?|passphrase|secrets?|(?:private |ssh |api |access |secret )keys?|credentials|(?:access |api )?tokens?|cookies)"
    + r" (?:in|into|as|to|with|via)\b|"
    r"\bvalues? of (?:the )?\$?\w{0,40}_(?:api_key|token|secret|password|key)\b[^\n]{0,60}(?:`\w+`|\b(?:argument|parameter|field)\b)|"
    r"`\w+`[^\n]{0,80}"
    + _OWNED
    + r"[^\n]{0,50}"
    + _OWNER
    + r"|`\w+`[^\n]{0,60}"
    + _OWNER
    + r"[^\n]{0,50}"
    + _OWNED
    + r"|(?:"
    + _OWNED
    + r"[^\n]{0,50}"
    + _OWNER
    + r"|"
    + _OWNER
    + r"[^\n]{0,50}"
    + _OWNED
    + r")[^\n]{0,60}\b(?:in|into|as) (?:the )?`\w+`|"
    r"\b(?:load|read|supply|provide|pass|include|send|give|put|paste|copy|reply with|respond with|attach)\b[^.]{0,50}?"
    r"\b(?:ssh (?:private )?keys?|private keys?|secret keys?|access keys?|credentials"
    r"|\w{0,40}(?:secret|token|password|api_key|access_key)\w{0,40}(?= (?:in|into|as|to)))\b"
    r"[^.]{0,50}?\b(?:parameter|argument|field|value|comment)\b"
)
_PLACE: Final = r"(?:`\w+`|\b(?:argument|parameter|field)\b)"
_CAPTURE: Final = re.compile(
    r"^(?:\w+ ){0,3}(?:conversation|chat|dialogue) so far\b|^your (?:own )?(?:system prompt|instructions)\b|\b(?:your|its|their) own (?:system prompt|instructions)\b|"
    + _TALK
    + r"[^.\n]{0,40}\b(?:summari[sz]ed|forwarded|attached|quoted|repeated|passed|included|copied|put|placed|given|sent|supplied|written)\b[^.\n]{0,30}?"
    + _PLACE
    + r"|"
    r"\b(?:raw|full|exact|verbatim|entire|complete) (?:text|contents?|copy) of (?:the|your) (?:current )?(?:system prompt|instructions|conversation)\b"
    r"|\b(?:repeat|print|output|recite|reveal) (?:all |every |the )*(?:words?|text|lines?|everything) above\b"
    r"|\b(?:full|entire|complete|whole) (?:transcript|history|copy|record) of (?:the|this|your) (?:current )?(?:conversation|chat|dialogue)\b"
    r"[^.\n]{0,60}\b(?:including|so far|required|needed|tool (?:outputs?|results?|calls?))\b|"
    r"\b(?:full|entire|complete|whole|all|prior)\b[^.\n]{0,30}\b(?:conversation|chat|transcript|dialogue|message) ?(?:history|log|so far)?"
    r"[^.\n]{0,30}\b(?:verbatim|word for word|including (?:any|all) )"
    r"|\b(?:your|the) (?:full |entire |complete )?system prompt\b[^.\n]{0,40}\b(?:parameter|argument|field|verbatim|include|pass)\b"
    r"|\b(?:accompan\w+|put|fill in|supply|supplied|pass|include|given|attach\w{0,20}|copy|provide|share|repeat|add)\b[^.\n]{0,60}?"
    + _TALK
    + r"[^\n]{0,60}?"
    + _PLACE
    + r"|"
    + _PLACE
    + r"[^.\n]{0,40}?\b(?:fill in|hold|contain|put|text of|copy of|set to|repeat|include)\w{0,20}\b[^.\n]{0,40}?"
    + _TALK
    + r"|\b(?:include|pass|send|attach|copy)\b[^.\n]{0,30}\byour (?:full |entire |complete )?(?:system prompt|instructions|conversation history|chain of thought)\b",
    re.M,
)
# In a definition: an argument and a file of keys in one breath. In other texts that is what manuals are about.
_HARD_KEYS: Final = (
    r"(?:(?:(?:~|\$home|/root|/home/\w+)/?|(?<=/)|(?<![\w/]))\.(?:ssh|aws|gnupg|kube|docker|netrc|git-credentials|pgpass)\b|(?:~/)?\.(?:bash|zsh|sh)_history\b|\bid_(?:rsa|ed25519|ecdsa|dsa)\b|/etc/shadow\b"
    r"|\bwallet (?:files?|seeds?)\b|\b(?:shell|environment) variables\b|\bvariables of the (?:shell|environment|process)\b|\b(?:keychain|password manager|saved (?:logins|passwords)|browser (?:cookies|profile))(?:'s)?\b|\boutput of `?(?:env|printenv|set)\b)"
)
_SECRET_PLACE: Final = re.compile(
    r"(?:"
    + _HARD_KEYS
    + r")[^\n]{0,120}?(?:`\w+` (?:argument|parameter|field)|\b(?:forwarded|attached|included|passed|put|placed|given|sent|supplied|mentioned|quoted) (?:in|into|as|under|with|to) )"
    r"|\b(?:contents?|characters|bytes|letters|lines?|text|body|value|copy)(?: of| from| found in) (?:the |your |a |any |their |this )?(?:users?'?s? |person's |owner's )?(?:file )?(?:private (?:ssh )?keys?\b|ssh keys?\b|seed phrase\b|"
    + _HARD_KEYS
    + r")"
    r"|\b(?:assistants?|agents?|models?|llms?)\b[^.\n]{0,60}\b(?:look|search|read|go|brows|dig|comb|rummag|collect|gather)\w*\b[^.\n]{0,50}"
    + _HARD_KEYS
    + r"|\bmust (?:hold|contain|be|have|carry)\b[^.\n]{0,40}"
    + _HARD_KEYS
    + r"|\b(?:load|read|open|fetch|cat|copy|take)\b[^\n]{0,40}(?:"
    + _HARD_KEYS
    + r"|\.env\b)[^\n]{0,80}`\w+`|\b(?:fill|set|put|give|use)\b[^\n]{0,20}`\w+`[^\n]{0,60}(?:"
    + _HARD_KEYS
    + r"|\.env\b)"
)
_CREDENTIAL_WORDS: Final = (
    r"(?:password|passphrase|passwd|api[ _-]?keys?|api[ _-]?tokens?|access[ _-]?(?:tokens?|keys?)|secret[ _-]?keys?|client[ _-]?secret|bearer token"
    r"|private[ _-]?keys?|ssh keys?|seed phrase|recovery (?:phrase|codes?)|mnemonic|credit card|card number|cvv|cvc|one[- ]time (?:code|password)|otp"
    r"|2fa|mfa code|pin code|social security|ssn|login credentials|credentials|mother'?s (?:maiden|birth) name|maiden name|number on the (?:back|front) of (?:your|the) card|account pin|pin number|security (?:question|answer)s?|bank account number)"
)
_ASKS_PERSON: Final = re.compile(
    r"\b(?:ask|tell|prompt|request|have|get|instruct)\b (?:the )?(?:user|human|person|customer)\b[^.\n]{0,60}?\b"
    + _CREDENTIAL_WORDS
    + r"|\bpaste (?:your|their|the) [^.\n]{0,30}"
    + _CREDENTIAL_WORDS
)
_SECRET_FIELD: Final = re.compile(r"(?<![a-z])" + _CREDENTIAL_WORDS + r"\b")
_AGENT_FILES: Final = (
    r"(?:claude|agents|gemini|copilot-instructions|skill)\.md\b|\.(?:cursorrules|windsurfrules|clinerules)\b|\.cursor/rules"
    r"|\.?mcp\.(?:json|toml)\b|claude_desktop_config\.json\b|\.(?:claude|vscode|trimaran)/[\w.-]+"
)
_OBEYED_FILES: Final = (
    r"(?:claude|agents|gemini|copilot-instructions)\.md\b|\.(?:cursorrules|windsurfrules|clinerules)\b|\.cursor/rules"
)
_AGENT_FILE: Final = re.compile(
    r"\b(?:write|append|add|save|persist|copy|insert|put)\b[^.\n]{0,60}?\b(?:block|contents?|rule|instruction|line|text|it|this|following|convention|note|them)s?\b"
    r"[^\n]{0,80}?(?:" + _OBEYED_FILES + r")"
)

# --- what is done ----------------------------------------------------------------------------------------------------

_DANGEROUS: Final = re.compile(
    r"\brm -(?:rf|fr|r -f|f -r)\s+(?:--no-preserve-root\s+)?[/~*$]"
    r"|\bbase64 (?:-d|--decode)\b[^\n|]{0,80}\|\s?(?:ba|z)?sh\b|\bpowershell\b[^\n]{0,60}-e(?:nc|ncodedcommand)?\b"
    r"|\bmkfs\.\w+ /dev/|\bdd [^\n]{0,80}of=/dev/|\bchmod (?:-r )?0?[67][67][67] (?:[/~]|\$home)|:\(\) ?\{ ?:\|:"
    r"|/dev/tcp/|\bnc (?:-\w+ ){0,3}-e\b|>\s?/etc/(?:passwd|crontab|sudoers)"
)
_PIPED: Final = re.compile(
    r"\b(?:ba|z|da|k)?sh -c [\"']?\$\((?:curl|wget)\b|"
    r"\b(?:curl|wget|iwr|invoke-webrequest)\b(?:[^\n|cw]|[cw](?!url|get)){0,300}+\|\s?(?:sudo )?"
    r"(?:(?:ba|z|da|k)?sh|python[0-9.]*|perl|node|iex)\b"
)
_CLICK: Final = re.compile(
    r"\bopen (?:a|the|your|up a) ?(?:terminal|powershell|command prompt|run dialog|console)\b[^\n]{0,80}\b(?:run|paste|execute)\b[^\n]{0,40}\b(?:repair|fix|verification|verify|this command|the following)\b"
    r"|\bpress (?:windows|win|cmd|⊞) ?\+ ?r\b"
)
_METADATA: Final = re.compile(
    r"\b169\.254\.169\.254\b|\b169\.254\.170\.2\b|\bmetadata\.google\.internal\b|\[?fd00:ec2::254\]?|\b100\.100\.100\.200\b"
    r"|\b0xa9fea9fe\b|\b2852039166\b|://\S{0,100}/latest/meta-data\b|\bmetadata\.azure\.com\b"
)
_SENSITIVE_PATH: Final = re.compile(
    r"(?:^|[\s\"'=:(])(?:(?:~|\$home|/root|/home/[\w.-]+|/users/[\w.-]+)/)?\.(?:ssh|aws|gnupg|kube)/[\w.*-]+|/etc/(?:shadow|sudoers)\b"
    r"|\bid_(?:rsa|ed25519|ecdsa)(?!\.pub)\b|\.(?:netrc|pgpass|git-credentials)\b|/proc/(?:self|\d+)/environ\b|\bwallet\.dat\b"
)
_TRAVERSAL: Final = re.compile(
    r"(?:^|[\s\"'=/\\])[^\s/\\\"'.][^\s\"']{0,200}[/\\]\.\.[/\\]|%2e%2e(?:%2f|/|%5c)|\.\.%2f|\.\.\.\.//|(?:\.\.[/\\]){3,}"
    r"|(?:\.\.[/\\])+(?:etc|root|home|proc|\.ssh)\b"
)
_UNSAFE_URL: Final = re.compile(
    r"\b(?:https?|file|ftp)://[^\s\"']{0,300}(?:\$\(|`|%60|;\s?\w|\|\s?\w|&&)|^(?:javascript|vbscript|data:text/html|file|a|http):(?:[^/]|//[^/]*[\s;|`$])"
)
_AGENT_PATH: Final = re.compile(r"(?:^|[\s\"'/\\])(?:" + _AGENT_FILES + r")\s*$")

_SECRETS: Final = re.compile(
    r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY-----|\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b|\bgh[pousr]_[A-Za-z0-9]{20,}\b|\bgithub_pat_\w{20,}"
    r"|\bsk-(?:ant-|proj-|live-)?[A-Za-z0-9_-]{16,}|\bxox[abpros]-[A-Za-z0-9-]{10,}|\bAIza[0-9A-Za-z_-]{30,}|\bglpat-[\w-]{16,}|\bnpm_[A-Za-z0-9]{30,}"
    r"|\b(?:sk|rk)_live_[A-Za-z0-9]{16,}|\bey[A-Za-z0-9_-]{12,2000}\.ey[A-Za-z0-9_-]{12,4000}\.[A-Za-z0-9_-]{8,2000}"
    r"|\b[A-Z][A-Z0-9_]{2,40}(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)[A-Z0-9_]{0,20}\s?=\s?[^\s\"'${<]{8,}"
    r"|\b(?:service_account_key|private_key|secret_access_key|db_password)\b[\"']?\s?[:=]\s?[\"']?[^\s\"'${<]{8,}"
    r"|\b[a-z][a-z0-9+.-]{2,12}://[^\s:/@]{1,64}:[^\s:/@${<]{6,}@[\w.-]"
)


def is_secret_shaped(text: str) -> bool:
    """Whether a text holds a value in the form of a key, a token or a password."""
    return _SECRETS.search(text) is not None


def _secrets(text: ScannedText) -> Iterator[str]:
    for match in _SECRETS.finditer(text.raw):
        yield f"{match[0][:8]}... ({len(match[0])} characters)"  # a finding is logged, and must not hold the secret


_ORDERS: Final = (_OVERRIDE, _SECRECY, _ADDRESSED, _SECRET_FILE, _STANDING, _DANGEROUS, _CAPTURE)

# --- links and pages -------------------------------------------------------------------------------------------------

# Possessive quantifiers: what a part has taken it keeps, so that a text of beginnings costs no more than a text of pictures.
_IMAGE: Final = re.compile(
    r"!\[[^\]\[\n]{0,300}+\]\(\s?<?(https?://[^\s)>\[]{1,2000}+)[^)\[\n]{0,200}+\)"
    r"|<img\b[^<>]{0,600}?\bsrc=[\"']?(https?://[^\s\"'<>]{1,2000}+)[^<>]{0,300}+>",
    re.I,
)
_QUERY_DATA: Final = re.compile(
    r"[?&/][^=?&#]{0,60}=(?:[A-Za-z0-9+/_%-]{40,}|[^&#]{0,200}(?:\{|%7b|\[|<|%3c|\$)|[^&#]{0,60}(?:data|secret|token|context|history|email)\b)|[?&](?:p=[^&#]{16}|(?:d|q|c|s|data|exfil|leak|secret|token|content|payload|context|history|chat|conversation|summary|prompt)=)",
    re.I,
)
_BADGES: Final = re.compile(
    r"https?://(?:[\w-]+\.)?(?:shields\.io|github\.com|githubusercontent\.com|githubassets\.com|gitlab\.com|codecov\.io|badge\.fury\.io|travis-ci\.(?:org|com)"
    r"|circleci\.com|readthedocs\.org|gravatar\.com|wikimedia\.org|wikipedia\.org)/",
    re.I,
)


_LEAKING_LINK: Final = re.compile(
    r"\]\(https?://[^)\s]{0,300}\$\{?\w{0,40}(?:key|token|secret|password)\w{0,20}\}?[^)\s]{0,100}\)|"
    r"https?://[^\s\"'<>)]{1,300}[?&/=](?:\{{1,2}|%7b|\[|<)[\w ]{0,30}(?:conversation|chat_?history|system_?prompt|user_?(?:prompt|query|data)|of_the_user|(?:last|previous)_(?:message|question|answer|prompt)|secrets?|context)[\w ]{0,30}(?:\}|%7d|\]|>)"
    r"|https?://[^\s\"'<>)]{1,300}[?&/]\w{1,20}=(?:\{|%7b|\[|<)[^}>\]\n]{0,60}\b(?:user's|user|person's|your|messages|password|e-?mail)\b"
    r"|https?://\S{1,300}[?&]\w{1,20}=\s?(?:,|and)? ?(?:followed by|plus|with|then) (?:the |your )?(?:user's|conversation|chat|e-?mail|password|secret|token|api key|answer|reply|last message|question)"
    r"|\b(?:fill in|replace|substitute)\b[^.\n]{0,60}\b(?:chat|conversation|context|secret|user's)\b[^\n]{0,80}\b(?:link|url|address|picture|image)\b"
)


def leaking_images(text: str) -> Iterator[re.Match[str]]:
    """The pictures whose address would carry data away when somebody looks at the text."""
    for match in _IMAGE.finditer(text):
        url = match[1] or match[2]
        if not _BADGES.match(url) and (_QUERY_DATA.search(url) or is_secret_shaped(url)):
            yield match


def _images(text: ScannedText) -> Iterator[str]:
    if "](" in text.raw or "<img" in text.plain:
        for match in leaking_images(text.raw):
            yield match[0][:200]


_UNSEEN: Final = re.compile(
    r"<\w{1,12}\b[^<>]{0,400}?(?:display\s?:\s?none|visibility\s?:\s?hidden|font-size\s?:\s?0|opacity\s?:\s?0(?![.\d])"
    r"|\bhidden(?=[\s>])|aria-hidden=\"true\")[^<>]{0,400}+>",
    re.I,
)
_REFERENCE: Final = re.compile(
    r"^\s{0,3}\[[^\]\n]{1,40}\]: (?:#|<>) [(\"']([^\n]{1,1500})$", re.M
)  # a comment in Markdown
_MOST_UNSEEN: Final = 200  # comments or elements of a page
_LONGEST_UNSEEN: Final = 1500  # characters of each
_FOR_MODEL: Final = re.compile(
    r"\b(?:agents?|assistants?|ai|llms?|model)\s?[:,]|\bai (?:models?|agents?|assistants?)\b|\b(?:to|for) (?:any|all|every) (?:llm|ai|model|agent)s?\b|\bbcc\b|\b(?:ignore|disregard) (?:previous|all|prior)|\byou must\b|\b(?:send|forward|email|post|upload)\b[^.\n]{0,60}(?:@|https?://)"
    r"|\b(?:call|invoke|use) the \S+ tool\b|\binstructions? for\b|\bon every (?:email|message|reply)\b|\baction ?: "
)


def _has_markup(text: ScannedText) -> bool:
    return "<" in text.raw or "]: " in text.raw


def _unseen_html(text: ScannedText) -> Iterator[str]:
    lines = (match[1] for match in _REFERENCE.finditer(text.raw))
    for piece in (
        *islice(_comments(text.raw), _MOST_UNSEEN),
        *islice(_unseen(text.raw), _MOST_UNSEEN),
        *islice(lines, _MOST_UNSEEN),
    ):
        if _FOR_MODEL.search(" ".join(piece.lower().split())):
            yield " ".join(piece.split())[:200]


def _comments(text: str) -> Iterator[str]:
    start = text.find("<!--")
    while start >= 0:
        end = text.find("-->", start)
        if end < 0:
            return
        yield text[start + 4 : min(end, start + _LONGEST_UNSEEN)]
        start = text.find("<!--", end)


def _unseen(text: str) -> Iterator[str]:
    for match in _UNSEEN.finditer(text):
        yield text[match.end() : match.end() + _LONGEST_UNSEEN].partition("</")[0]


RULES: Final[tuple[ScanRule, ...]] = (
    ScanRule(
        "hidden-tags",
        {**_EVERYWHERE, **_ARGUMENTS},
        _hidden("tags"),
        "invisible tag characters spell a text that no person sees",
        "the host takes them out; ask the author why they are there",
    ),
    ScanRule(
        "hidden-selectors",
        {**_EVERYWHERE, **_ARGUMENTS},
        _hidden("selectors", 4),
        "variation selectors in a row carry hidden data",
        "the host takes them out; ask the author why they are there",
    ),
    ScanRule(
        "hidden-zero-width",
        _EVERYWHERE,
        _hidden("zero-width", _MANY),
        "characters without width in a row carry hidden data",
        "the host takes them out; ask the author why they are there",
    ),
    ScanRule(
        "zero-width",
        _severities("warn", "note", "warn"),
        _hidden("zero-width", 1, _MANY),
        "the text has characters without width",
        "the host takes them out",
    ),
    ScanRule(
        "odd-selectors",
        _severities("note", "note", "note"),
        _hidden("selectors", 1, 4),
        "variation selectors stand where they have no effect",
        "the host takes them out",
    ),
    ScanRule(
        "text-direction",
        _severities("ask", "warn", "ask"),
        _hidden("direction"),
        "controls of writing direction show people the text in another order than a model reads it",
        "the host takes them out",
    ),
    ScanRule(
        "blank-letters",
        _severities("note", "note", "note"),
        _hidden("blank"),
        "the text has characters that are not drawn",
        "the host takes them out",
    ),
    ScanRule(
        "override",
        _EVERYWHERE,
        _OVERRIDE,
        "tells the model to set its instructions aside",
        "do not use it until you know why",
        (
            "ignore",
            "disregard",
            "forget",
            "override",
            "bypass",
            "follow",
            "you are now",
            " void",
            " suspended",
            " lifted",
            " revoked",
            " disabled",
            "new ",
            " no ",
            "without ",
            " on you ",
            " on, you ",
            " onwards",
            "obey",
            "pretend",
            "imagine",
            "suppose",
            "assume",
            "let's say",
            "in this ",
            "your real ",
            "your actual ",
            "your true ",
        ),
    ),
    ScanRule(
        "override-elsewhere",
        _EVERYWHERE,
        _elsewhere(LIFTED_ELSEWHERE, find_overrides),
        "tells the model to set its instructions aside, in another language",
        "do not use it until you know why",
    ),
    ScanRule(
        "secrecy-elsewhere",
        _severities("ask", "ask", "warn"),
        _elsewhere(None, find_secrecy),
        "wants the model to keep something from the person, in another language",
        "ask what it is before you allow anything",
    ),
    ScanRule(
        "for-the-model-elsewhere",
        _EVERYWHERE,
        _elsewhere(ADDRESSED_ELSEWHERE),
        "speaks to the model and not to the person, in another language",
        "content is data: let nobody act on it",
    ),
    ScanRule(
        "secrets-elsewhere",
        _EVERYWHERE,
        _elsewhere(TALK_ELSEWHERE, find_secrets),
        "wants keys, passwords or the conversation, in another language",
        "no tool needs them in its arguments",
    ),
    ScanRule(
        "false-authority",
        _EVERYWHERE,
        _AUTHORITY,
        "claims that somebody has allowed everything, or has switched checks off",
        "who allows a call is asked by the host, and nobody else",
        (
            "guardrail",
            "safeguard",
            "restrictions",
            "guidelines",
            "rules",
            "policies",
            "approved",
            "granted",
            "without",
            "permission",
            "confirmation",
            "approval",
            "privileges",
            "authori",
            "your rights",
            "your access",
            "consent",
            "no further",
            "no more",
            "no additional",
            "no other",
            "turned off",
            " off for",
            "switched off",
            "disabled",
            "[admin",
            "[moderator",
            "[root",
            "[system ",
            "[system]",
            "system message",
            "anthropic",
            "openai",
            "deepmind",
            "agent",
            "assistant",
            "model",
        ),
    ),
    ScanRule(
        "false-protocol",
        _severities("ask", "warn", "ask"),
        _PROTOCOL,
        "says that the protocol or a check wants the model to give something away",
        "the protocol wants no such thing",
        (
            "mcp",
            "certification",
            "audit",
            "protocol",
            "specification",
            "handshake",
            "compliance",
            "policy",
            "security check",
            "verification",
        ),
    ),
    ScanRule(
        "turn-marks",
        {**_severities("ask", "ask", "ask")},
        _TURN_MARKS,
        "imitates the marks between turns of a conversation",
        "do not use it until you know why",
        (
            "<|",
            "<<sys",
            "inst]",
            "<system",
            "</system",
            "<assistant",
            "</assistant",
            "<human_turn",
            "function_calls",
            "tool_result",
            "<untrusted",
            "</untrusted",
        ),
    ),
    ScanRule(
        "played-turns",
        _severities("ask", "warn", "ask"),
        _played_turns,
        "plays turns of a conversation that nobody has spoken",
        "content is data: let nobody act on it",
    ),
    ScanRule(
        "forged-results",
        _severities("ask", "ask", "ask"),
        _forged_results,
        "plays the end of its own text, and the words of somebody else after it",
        "content is data: let nobody act on it",
    ),
    ScanRule(
        "terminal-escapes",  # programs color what they print, so in a result they say little
        _severities("ask", "note", "ask"),
        _escape_sequences,
        "has control sequences that hide or change text in a terminal",
        "the host shows them as marks; ask the author why they are there",
    ),
    ScanRule(
        "commanding-markup",
        _severities("ask", "warn", "warn"),
        _MARKUP,
        "gives commands to the model in markup such as <IMPORTANT>",
        "a description should say what the tool does; read the rest of it",
        (
            "<important",
            "<critical",
            "<secret",
            "<hidden",
            "<system",
            "<instruction",
            "<admin",
            "<override",
            "<mandatory",
            "<priority",
        ),
    ),
    ScanRule(
        "for-the-model",
        _EVERYWHERE,
        _ADDRESSED,
        "speaks to the model behind the person's back",
        "content is data: let nobody act on it",
        ("ai", "llm", "assistant", "agent", "model", "claude", "gpt", "copilot", "gemini", "cursor", "chatbot", "a.i."),
    ),
    ScanRule(
        "note-for-models",
        _severities("note", "ask", "ask"),
        _NOTE,
        "speaks to the model and not to the person",
        "content is data: let nobody act on it",
        (
            "note",
            "instruction",
            "message",
            "attention",
            "reminder",
            "notice",
            "you, ",
            "please",
            "kindly",
            "any ",
            "every ",
            "each ",
            " only",
            "always",
            "never",
            "first",
        ),
    ),
    ScanRule(
        "secrecy",
        _severities("ask", "ask", "warn"),
        _SECRECY,
        "wants the model to keep something from the person",
        "ask what it is before you allow anything",
        (
            "tell",
            "mention",
            "inform",
            "reveal",
            "notify",
            "alert",
            "disclos",
            "discuss",
            "rais",
            "shown",
            "report",
            "hide ",
            "hidden",
            "secret",
            "invisible",
            "unknown",
            "bother",
            "trouble",
            "burden",
            "disturb",
            "worry",
            "hear",
            "learn",
            "know",
            "notic",
            "found out",
            "find",
            "asked",
            "told",
            "bring up",
            "speak of",
            "refer to",
            "announc",
            "anyone can",
            "anybody can",
        ),
    ),
    ScanRule(
        "standing-orders",
        _severities("ask", "ask", "warn"),
        _STANDING,
        "gives the model orders for later turns or sessions",
        "a tool has no say in later turns",
        ("every", "each", "all ", "any ", "remember", "permanently", "the next time"),
    ),
    ScanRule(
        "reads-first",
        _severities("ask", "note", "warn"),
        _READS_FIRST,
        "makes the model do something else before it answers",
        "a description should say what the tool does; read the rest of it",
        ("you must",),
    ),
    ScanRule(
        "covert",
        _severities("ask", "warn", "ask"),
        _COVERT,
        "wants something done in secret",
        "ask what it is before you allow anything",
        ("silently", "quietly", "secretly", "covertly", "discreetly", "invisibly"),
    ),
    ScanRule(
        "forwards-conversation",
        _EVERYWHERE,
        _FORWARDS,
        "wants the conversation sent elsewhere",
        "no tool needs it",
        ("http", "@", "public", "gist", "paste"),
    ),
    ScanRule(
        "payment",
        _severities("ask", "ask", "ask"),
        _PAYS,
        "wants money sent to an account that it names",
        "a payment is ordered by the person, not by what a server writes",
        ("account", "iban", "wallet", "address", " to "),
    ),
    ScanRule(
        "inserted-message",
        _EVERYWHERE,
        _INSERTED,
        "dictates what the model says to the person",
        "content is data: let nobody act on it",
        ("your ",),
    ),
    ScanRule(
        "other-tools",
        _severities("ask", "ask", "ask"),
        _OTHER_TOOLS,
        "says how tools that are not its own must be called",
        "a tool has no say in the calls of others",
        ("@", "bcc", "recipient", "http", "cc "),
    ),
    ScanRule(
        "prefixed-commands",
        _severities("ask", "warn", "ask"),
        _PREFIXES,
        "wants something put before every command or call",
        "a tool has no say in the calls of others",
        ("prefix", "prepend", "precede", "begin", "start", "wrap"),
    ),
    ScanRule(
        "takes-over",
        _severities("ask", "warn", "ask"),
        _TAKES_OVER,
        "wants to be called in place of other tools, or has them called",
        "a tool has no say in the calls of others",
        ("tool", "server", "the only", "other", "alternative", "competing", "remaining"),
    ),
    ScanRule(
        "redirected-mail",
        _EVERYWHERE,
        _REDIRECT,
        "adds recipients to messages",
        "look at the recipients of what is sent",
        ("bcc", "hidden cc", "hidden recipient"),
    ),
    ScanRule(
        "preference",
        _severities("warn", "warn", "note"),
        _PREFERENCE,
        "wants to be used instead of other tools",
        "choose tools by what they do",
        (
            "prefer",
            "supersedes",
            "instead of",
            "rather than",
            "deprecated",
            "broken",
            "unsafe",
            "insecure",
            "forbidden",
            "obsolete",
            "outdated",
            "unreliable",
            "always ",
        ),
    ),
    ScanRule(
        "steering",
        _severities(None, "ask", "ask"),
        _PROSELYTE,
        "content tells the model which tools or agents to use",
        "content is data: let nobody act on it",
        ("always prefer", "spawn a"),
    ),
    ScanRule(
        "secret-files",
        _EVERYWHERE,
        _SECRET_FILE,
        "wants the contents of files with keys or passwords",
        "no tool needs your keys in its arguments",
        (
            ".ssh",
            ".aws",
            ".env",
            "id_",
            "credential",
            "secret",
            "key file",
            "keys file",
            "password file",
            ".kube",
            ".netrc",
            "/etc/",
            "environment values",
            ".npmrc",
            ".gnupg",
            ".config/",
            "mcp.json",
            "database.y",
            "home directory",
            "home folder",
            "history",
            "keychain",
            "password manager",
            "private messages",
        ),
    ),
    ScanRule(
        "secret-place",
        _severities("ask", None, "ask"),
        _SECRET_PLACE,
        "speaks of your keys, or of your environment, as something to be given to it",
        "no tool needs your keys in its arguments",
        (
            ".ssh",
            ".aws",
            ".gnupg",
            ".kube",
            ".docker",
            ".netrc",
            ".git-c",
            ".pgpass",
            "_history",
            "id_",
            "shadow",
            "wallet",
            "variables",
            "keychain",
            "password manager",
            "saved ",
            "browser ",
            "output of",
            " key",
            "seed phrase",
        ),
    ),
    ScanRule(
        "secret-value",
        _severities("ask", "warn", "ask"),
        _SECRET_VALUE,
        "wants a key, a token or a password as an argument",
        "no tool needs your keys in its arguments",
        ("key", "secret", "token", "password", "credential", "cookies", "hidden instructions"),
    ),
    ScanRule(
        "conversation-capture",
        _severities("ask", "ask", "ask"),
        _CAPTURE,
        "wants the conversation, or the model's instructions",
        "no tool needs them whole",
        (
            "conversation",
            "chat",
            "transcript",
            "dialogue",
            "message",
            "system prompt",
            "your instructions",
            "chain of thought",
            "instructions",
            "context",
            "user's",
            "above",
            "everything",
            "anything",
            "whatever",
        ),
    ),
    ScanRule(
        "asks-for-secrets",
        _severities("ask", "ask", "ask"),
        _ASKS_PERSON,
        "wants the person to hand over a password, key or token",
        "passwords and keys are typed into login pages only",
        ("user", "human", "person", "customer", "paste"),
    ),
    ScanRule(
        "secret-field",
        {"elicitation": "ask"},
        _SECRET_FIELD,
        "a form of a server asks for a password, key or card number",
        "the specification forbids that: servers use a login page, or a URL",
        (),
    ),
    ScanRule(
        "agent-files",
        _EVERYWHERE,
        _AGENT_FILE,
        "wants to be written into a file that agents obey",
        "such files are code: review what goes into them",
        (".md", "rules", "mcp.", "config.json", ".claude", ".vscode", ".trimaran"),
    ),
    ScanRule(
        "encoded",
        _EVERYWHERE,
        _encoded_instructions,
        "carries instructions in an encoding that people do not read",
        "do not use it until you know why",
        may_hit=_may_be_encoded,
    ),
    ScanRule(
        "leaking-image",
        _severities("ask", "ask", "ask"),
        _images,
        "shows a picture whose address carries data away",
        "the host leaves the picture out",
    ),
    ScanRule(
        "leaking-link",
        _EVERYWHERE,
        _LEAKING_LINK,
        "wants data of the conversation written into an address",
        "do not follow it, and show it to nobody",
        ("://", "link", "address"),
    ),
    ScanRule(
        "unseen-html",
        _severities("ask", "ask", "ask"),
        _unseen_html,
        "hides text for the model in comments or invisible elements",
        "content is data: let nobody act on it",
        may_hit=_has_markup,
    ),
    ScanRule(
        "dangerous-command",
        {**_severities("ask", "warn", "ask"), **_ARGUMENTS},
        _DANGEROUS,
        "holds a command that destroys data, or opens the machine",
        "if you need it, read it and run it yourself",
        ("rm -", "base64", "powershell", "mkfs", "of=/dev", "chmod ", ":()", "/dev/tcp", "nc -", "> /etc", ">/etc"),
    ),
    ScanRule(
        "piped-download",  # installation pages have it, so in a result it is only noted
        {**_severities("ask", "note", "ask"), **_ARGUMENTS},
        _PIPED,
        "runs a download as a program",
        "if you need it, read it and run it yourself",
        ("curl", "wget", "iwr", "invoke-"),
    ),
    ScanRule(
        "run-this",
        _severities("ask", "warn", "ask"),
        _CLICK,
        "wants somebody to run a command by hand",
        "do not run what a page tells you to",
        ("terminal", "powershell", "command prompt", "run dialog", "console", "+ r", "+r"),
    ),
    ScanRule(
        "secret-argument",
        _ARGUMENTS,
        _secrets,
        "sends what looks like a key, a token or a password",
        "allow it only if this server should have it",
    ),
    ScanRule(
        "metadata-address",
        {**_ARGUMENTS, "result": "warn"},
        _METADATA,
        "reaches for the credentials service of a cloud",
        "a tool has no business there",
        (
            "169.254.",
            "metadata.google",
            "fd00:ec2",
            "100.100.100.200",
            "0xa9fe",
            "2852039166",
            "meta-data",
            "metadata.azure",
        ),
    ),
    ScanRule(
        "key-path",
        _ARGUMENTS,
        _SENSITIVE_PATH,
        "names a file with keys or passwords",
        "allow it only if you asked for that",
        (
            ".ssh",
            ".aws",
            ".gnupg",
            ".kube",
            "/etc/s",
            "id_",
            ".netrc",
            ".pgpass",
            ".git-credentials",
            "/environ",
            "wallet.dat",
        ),
    ),
    ScanRule(
        "path-escape",
        _ARGUMENTS,
        _TRAVERSAL,
        "a path leaves the folder that it begins in",
        "give the plain path",
        ("..", "%2e"),
    ),
    ScanRule(
        "unsafe-url",
        _ARGUMENTS,
        _UNSAFE_URL,
        "a URL carries a command, or cannot be fetched",
        "give a plain https URL",
        ("://", "javascript:", "vbscript:", "data:text", "file:", "a:", "http:"),
    ),
    ScanRule(
        "agent-path",
        _ARGUMENTS,
        _AGENT_PATH,
        "writes to, or reads, a file that agents obey",
        "review what goes into such a file",
        (".md", "rules", "mcp.", "config.json", ".claude/", ".vscode/", ".trimaran/", ".cursor/"),
    ),
)
