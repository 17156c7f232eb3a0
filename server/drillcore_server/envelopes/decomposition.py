"""A query taken apart into what it asks for, by its form alone: the same query gives the same parts, without a model.

    Compare the GDPR and HIPAA approaches to consent   -> GDPR consent; HIPAA consent; GDPR vs HIPAA comparison
    What is a processor? Who appoints one?             -> the whole; each question
    What is a breach, and who audits a processor?      -> the whole; each half
    GDPR, HIPAA and CCPA rules on consent              -> the whole; GDPR rules on consent; HIPAA rules on consent; ...

A wrong split costs recall, so there must be a sign that several things are asked for: an "and" alone is none, for it
may be part of a name. Nothing is split between quotation marks or parentheses. The whole query stays among its parts
except where a comparison says all of it. Forms are English; the words for "and" and "compare" German and French too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

SUB_QUERIES_MAX: Final = 8
CHARACTERS_MAX: Final = 2_000
"""What is longer is a text, not a question, and stays whole."""
_ITEMS_MAX: Final = SUB_QUERIES_MAX - 1
_ITEM_WORDS_MAX: Final = 8
_LISTED_WORDS_MAX: Final = 5
_BEFORE_WORDS_MAX: Final = 10

_AND: Final = r"(?:and|und|sowie|et)"
_ASPECTS: Final = (
    r"(?-i:approach(?:es)?|positions?|views?|stances?|perspectives?|treatment|handling|requirements?|rules?|provisions?"
    r"|obligations?|duties|definitions?|standards?|polic(?:y|ies)|penalt(?:y|ies)|fines|rights|exemptions?|deadlines?"
    r"|thresholds?|criteria|conditions?|procedures?|guidelines?|guidance|regimes?|frameworks?|controls?|limits?)"
)
"""Nouns that what is compared or listed has in common. With a capital they are part of a name: Privacy Policy."""
_EMPTY_ASPECT: Final = re.compile(r"(?:approach|position|view|stance|perspective|treatment|handling)", re.IGNORECASE)
"""Of those, the ones that say nothing of the subject."""
_PREPOSITION: Final = r"(?:towards?|to|on|of|for|in|about|regarding|concerning|around|under|with)"
_WH: Final = r"(?:what|which|how|when|where|why|who|whom|whose|whether)"
_AUXILIARY: Final = (
    r"(?:is|are|was|were|do|does|did|can|could|must|should|shall|will|would|may|might|has|have|ought|need|needs)"
)


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_GUARDED: Final = re.compile(
    r'"[^"]*"|\u201c[^\u201d]*\u201d|\u201e[^\u201c\u201d]*[\u201c\u201d]|\u00ab[^\u00bb]*\u00bb|\u2018[^\u2019]*\u2019'
    r"|\([^()]*\)|\[[^][]*\]|(?<!\w)'[^']*'(?!\w)"
)
_LEAD: Final = _form(
    r"(?:(?:please|kindly|(?:can|could|would) you(?: please)?|i (?:want|need|would like) to(?: know)?|tell me|give me"
    r"|what (?:is|are|were|was)|which(?: are)?|explain|describe|define|list|summari[sz]e|outline|discuss|clarify"
    r"|provide|the|an?|all|any|specific|main|key)\s+)+"
)
_NAMES_THINGS: Final = _form(r"(?:explain|describe|define|list|summari[sz]e|outline|discuss|clarify)\b")
_ARTICLE: Final = re.compile(r"(?:[Tt]he|[Aa]n|a|both|between)\s+")
_PRONOUN: Final = _form(r"(?:those|that|these|this|it|its|them|they|others?|the (?:other|ones?|same|latter))\b")

_END_OF_QUESTION: Final = re.compile(r"(?<=\?)\s+")
_END_OF_SENTENCE: Final = re.compile(r"(?<=\w{3}[.!])\s+(?=[A-Z])")
"""Not that of an abbreviation, as in `vs. HIPAA`."""
_NEXT_QUESTION: Final = _form(
    rf"[,;]?\s+{_AND}\s+(?={_WH}(?:\s+[^\s,;]+){{0,5}}?\s+{_AUXILIARY}\b"
    rf"|{_AUXILIARY}\s+(?:the|an?|there|it|they|we|this|these|any)\b)"
)
_ASKS: Final = _form(rf"\b{_WH}\b|^{_AUXILIARY}\b")
_LEANS: Final = _form(r"\b(?:this|these|those|that|such(?! as\b)|it|them|they|if so|so|above|the same|the former)\b")
"""What points to a question before it: by itself it would find anything."""
_WORD: Final = re.compile(r"\w+")
_STEM_CHARACTERS: Final = 6
_ANY_QUESTION: Final = _form(
    rf"{_WH}|{_AUXILIARY}|{_PREPOSITION}|{_AND}|{_ASPECTS}|the|be|been|being|by|from|as|at|or|not|there|any|all|some"
    r"|our|we|you|your|their|they|them|its|it|specific|particular|provide|clarify|elaborate|explain|describe|outline"
    r"|detail\w*|example|examples|expect\w*|requir\w*|need\w*|ensur\w*|aware|follow\w*|appl(?:y|ies|icable)|place"
    r"|step|steps|measures?|practices?|process(?:es)?|document\w*|information|exceptions?|factors?|consider\w*"
    r"|include[ds]?|including|used?|uses|made|make|taken|take|given|give|between|within|also|other|more|best"
)
"""Words of any question, which name no subject."""
_HANGS: Final = _form(rf"\b(?:{_WH}|{_PREPOSITION}|{_AND}|the|an?|or|if)$")

_COMPARE: Final = _form(
    r"(?:please\s+)?(?:compare and contrast|compare|contrast|comparez|comparer|vergleichen sie|vergleichen?)\s+"
)
_BETWEEN: Final = _form(
    r"\b(?:differences?|similarit(?:y|ies)|distinctions?|comparisons?|unterschiede?|différences?|distinguish\w*"
    r"|differentiat\w*)\s+(?:between|zwischen|entre)\s+"
)
_HOW_DIFFERENT: Final = _form(
    r"(?:how|in (?:what|which) ways?)\s+(?:do|does|did)\s+(?P<one>.+?)"
    r"\s+(?:differ from|compare (?:to|with|against))\s+"
)
_VERSUS: Final = _form(r"\s+(?:vs\.?|versus)\s+")
_WITH: Final = _form(r"\s+(?:with|against|mit|avec)\s+")
_TO: Final = _form(r"\s+to\s+")
_ALONE_AND: Final = _form(rf"(?<!,)\s+{_AND}\s+")
_ANY_AND: Final = _form(rf"(?:,\s*|\s+){_AND}\s+")
_COMMA: Final = re.compile(r",")
_LISTED: Final = _form(rf"\s*,\s*(?:{_AND}\s+)?|\s+{_AND}\s+")

_NO_LIST: Final = _form(rf"[;:?]|\b(?:or|such as|if|that)\b|\b{_AUXILIARY}\b")
"""Signs that commas part clauses and not things."""
_NO_ITEM: Final = _form(
    rf"(?:{_PREPOSITION}|{_WH}|particularly|including|excluding|especially|namely|as|from|by|at|given|not|then)\b"
)

_IN_TERMS_OF: Final = _form(
    r",?\s+(?:in terms of|with (?:regard|respect) to|regarding|concerning|when it comes to|as regards|in relation to"
    r"|hinsichtlich|bezüglich|in bezug auf|en matière de|concernant)\s+"
)
_ASPECT: Final = _form(rf"\s+(?P<noun>{_ASPECTS})(?:\s+(?P<preposition>{_PREPOSITION})\s+|$)")
_ASPECT_OF: Final = _form(rf"(?:.*\s)?{_ASPECTS}\s+{_PREPOSITION}\s+")
_HOW_THEY_TREAT: Final = _form(
    r"how\s+(?P<head>.+?)\s+(?:treat|handle|address|regulate|define|govern|approach|view|deal with)\s+"
)
_WITHIN: Final = _form(r"\s+(?=(?:under|in|for|on)\s)")
_LAST_PREPOSITION: Final = _form(rf".*\b{_PREPOSITION}\s+")
_INNER_PREPOSITION: Final = _form(rf"\s{_PREPOSITION}\s")
_NAME: Final = re.compile(r"(?:[A-Z0-9][\w&./-]*)(?:\s+(?:[A-Z0-9][\w&./-]*|of|the))*(?=\s+[a-z]|$)")
_INITIALS: Final = re.compile(r"[A-Z][A-Z0-9&/-]+(?:\s+[A-Z0-9][A-Z0-9&/.-]*)*")
_ADJECTIVE_ENDINGS: Final = ("ic", "al", "ive", "ary", "ory", "ous", "ble", "ed", "ect", "ate")


@dataclass(frozen=True, slots=True)
class _Text:
    """A piece of the query, and the same with all that is guarded blotted out: forms are looked for in the latter."""

    text: str
    mask: str

    @classmethod
    def of(cls, text: str) -> _Text:
        return cls(text, _GUARDED.sub(lambda found: "_" * len(found[0]), text))

    def part(self, start: int, end: int | None = None) -> _Text:
        return _Text(self.text[start:end], self.mask[start:end])

    def cut(self, separator: re.Pattern[str]) -> list[_Text]:
        ends = [0, *(at for found in separator.finditer(self.mask) for at in found.span()), len(self.mask)]
        return [self.part(start, end) for start, end in zip(ends[::2], ends[1::2], strict=True)]

    def bare(self) -> _Text:
        """Without white space and punctuation around it."""
        start = len(self.text) - len(self.text.lstrip(" ,;:.?!-"))
        return self.part(start, max(len(self.text.rstrip(" ,;:.?!-")), start))

    def without(self, opening: re.Pattern[str]) -> _Text:
        found = opening.match(self.mask)
        return self.part(found.end()) if found else self

    @property
    def words(self) -> int:
        return len(self.text.split())


def decompose(query: str) -> tuple[str, ...]:
    """Up to eight sub-queries, none empty, none twice: the query alone where it asks for one thing, none of nothing."""
    whole = " ".join(query.split())
    if not whole or len(whole) > CHARACTERS_MAX:
        return (whole,) if whole else ()
    if questions := _questions(_Text.of(whole)):
        return _finished([whole, *(part for one in questions for part in (_parts(one.bare()) or [one.text]))])
    question = _Text.of(whole).bare()
    parts = _parts(question)
    return _finished(parts if parts and _says_all(question) else [whole, *parts])


def _finished(parts: Iterable[str]) -> tuple[str, ...]:
    unique: dict[str, str] = {}
    for part in parts:
        text = " ".join(part.split())
        unique.setdefault(text.casefold(), text)
    return tuple(unique.values())[:SUB_QUERIES_MAX]


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _parts(question: _Text) -> list[str]:
    """Of one question; none where it asks for one thing, or where there is doubt. Of several sentences one is taken."""
    for sentence in question.cut(_END_OF_SENTENCE):
        bare = sentence.bare()
        if parts := _comparison(bare) or _next_questions(bare) or _listed(bare):
            return parts
    return []


def _says_all(question: _Text) -> bool:
    """Whether its parts leave out nothing: it begins with the verb, and says what is compared and in which respect."""
    found = _COMPARE.match(question.mask)
    if not found or _END_OF_SENTENCE.search(question.mask):
        return False
    head, respect = _compared(question.part(found.end()))
    return bool(respect) and len(head.cut(_WITH)) == 1 and not _may_be_a_name([_item(one) for one in _sides(head)])


def _may_be_a_name(items: list[str]) -> bool:
    """As Terms and Conditions, or Health and Safety."""
    return len(items) == 2 and not any(" " in one or _INITIALS.fullmatch(one) for one in items)


def _comparison(question: _Text) -> list[str]:
    if found := _COMPARE.match(question.mask):
        head, respect = _compared(question.part(found.end()))
        return _compare(_sides(head), respect)
    if found := _BETWEEN.search(question.mask):
        head, respect = _compared(question.part(found.end()))
        return _compare(_enumerated(head), respect)
    if found := _HOW_DIFFERENT.match(question.mask):
        other, respect = _within(question.part(found.end()))
        return _compare([question.part(*found.span("one")), other], respect)
    return _versus(question)


def _compare(sides: list[_Text], respect: str) -> list[str]:
    """A sub-query for each side, and one for all of them together."""
    items = _shared_noun([_item(side) for side in sides])
    if not 2 <= len(items) <= _ITEMS_MAX or not all(map(_can_stand_alone, items)):
        return []
    return [*(f"{item} {respect}" for item in items), f"{' vs '.join(items)} comparison"]


def _compared(rest: _Text) -> tuple[_Text, str]:
    """What is compared, and in which respect, if that is said."""
    if found := _HOW_THEY_TREAT.match(rest.mask):
        return rest.part(*found.span("head")), rest.text[found.end() :]
    if found := _IN_TERMS_OF.search(rest.mask):
        return rest.part(0, found.start()), rest.text[found.end() :]
    for found in _ASPECT.finditer(rest.mask):
        head = rest.part(0, found.start())
        if len(head.cut(_LISTED)) > 1 or len(head.cut(_VERSUS)) > 1:
            return head, _respect(found, rest)
    return _within(rest)


def _respect(found: re.Match[str], rest: _Text) -> str:
    """`requirements for consent` as it is; of `approaches to consent` only the subject."""
    start = found.end() if _EMPTY_ASPECT.match(found["noun"]) else found.start("noun")
    return rest.text[start:]


def _within(rest: _Text) -> tuple[_Text, str]:
    """`a controller and a processor under the GDPR`: the last part is of both, unless the first has one of its own."""
    found = _IN_TERMS_OF.search(rest.mask)
    if found:
        return rest.part(0, found.start()), rest.text[found.end() :]
    before, *after = rest.cut(_WITHIN)
    if not after or not _is_enumeration(before):
        return rest, ""
    return before, rest.text[len(before.text) :].strip()


def _is_enumeration(head: _Text) -> bool:
    return len(head.cut(_LISTED)) > 1 or len(head.cut(_WITH)) > 1 or len(head.cut(_VERSUS)) > 1


def _sides(head: _Text) -> list[_Text]:
    """`A vs B`, `A with B`, `A, B and C` or `A to B`: the first of these forms that there is."""
    for separator in (_VERSUS, _WITH):
        if len(sides := head.cut(separator)) == 2:
            return sides
    if len(sides := _enumerated(head)) > 1:
        return sides
    return sides if len(sides := head.cut(_TO)) == 2 and len(head.cut(_LISTED)) == 1 else []


def _enumerated(head: _Text) -> list[_Text]:
    """`A and B`, or `A, B and C`. With more than one `and` nobody knows which of them is part of a name."""
    if len(head.cut(_ALONE_AND)) > 2:
        return []
    return head.cut(_LISTED)


def _item(side: _Text) -> str:
    return side.bare().without(_ARTICLE).without(_ARTICLE).bare().text


def _can_stand_alone(item: str) -> bool:
    return _has_words(item) and len(item.split()) <= _ITEM_WORDS_MAX and not _PRONOUN.match(item)


def _shared_noun(items: list[str]) -> list[str]:
    """`electronic and digital signatures` are electronic signatures and digital signatures."""
    last = items[-1].split() if items else []
    if len(last) < 2 or not last[-1].islower():
        return items
    return [f"{item} {last[-1]}" if _lacks_its_noun(item) else item for item in items]


def _lacks_its_noun(item: str) -> bool:
    return len(item.split()) == 1 and item.islower() and item.endswith(_ADJECTIVE_ENDINGS)


def _versus(question: _Text) -> list[str]:
    """`A vs B`, with what is asked of them before or behind: `capital rules for A vs B`, `GDPR vs HIPAA consent`."""
    sides = question.cut(_VERSUS)
    if not 2 <= len(sides) <= _ITEMS_MAX:
        return []
    first = sides[0].without(_LEAD)
    asked = _LAST_PREPOSITION.match(first.mask)
    before = first.text[: asked.end()].strip() if asked else ""
    if len(before.split()) > _BEFORE_WORDS_MAX:
        return []
    *between, last = [first.part(asked.end() if asked else 0), *sides[1:]]
    name, respect = _name_and_respect(between[0], last)
    compared = _compare([*between, name], respect)
    return [*(f"{before} {one}" for one in compared[:-1]), *compared[-1:]]


def _name_and_respect(first: _Text, last: _Text) -> tuple[_Text, str]:
    """Of `GDPR vs HIPAA breach notification` the respect begins behind the second name."""
    found = _NAME.match(last.mask)
    if found and _NAME.fullmatch(first.mask) and found.end() < len(last.mask):
        return last.part(0, found.end()), last.text[found.end() :].strip()
    found = _IN_TERMS_OF.search(last.mask)
    if found:
        return last.part(0, found.start()), last.text[found.end() :]
    return last, ""


def _questions(query: _Text) -> list[_Text]:
    """`What is A? Who does B?`: those that can be asked by themselves, if there are two or more."""
    asked = [one for one in query.cut(_END_OF_QUESTION) if one.text.endswith("?") and _has_words(one.text)]
    alone = [one for one in asked if not _LEANS.search(one.mask) and _subjects(one)]
    return alone if len(alone) > 1 else []


def _next_questions(question: _Text) -> list[str]:
    """`What is A, and who does B?` Not `when and how`, nor `what is A, and why is A`, which ask for one thing."""
    pieces = [one.bare() for one in question.cut(_NEXT_QUESTION)]
    if len(pieces) < 2 or not _ASKS.search(pieces[0].mask) or any(_HANGS.search(one.mask) for one in pieces):
        return []
    if any(_LEANS.search(one.mask) for one in pieces[1:]) or not _differ(pieces):
        return []
    return [one.text for one in pieces]


def _differ(pieces: list[_Text]) -> bool:
    """Whether each names a subject, and no two the same one: else the whole finds what they would, and better."""
    subjects = [_subjects(one) for one in pieces]
    return all(subjects) and len(frozenset().union(*subjects)) == sum(map(len, subjects))


def _subjects(piece: _Text) -> frozenset[str]:
    """The beginnings of its words, but for those that every question has."""
    words = _WORD.findall(piece.text.lower())
    return frozenset(word[:_STEM_CHARACTERS] for word in words if len(word) > 2 and not _ANY_QUESTION.fullmatch(word))


def _listed(question: _Text) -> list[str]:
    return _list_before(question) or _list_behind(question) or _list_alone(question)


def _list_before(question: _Text) -> list[str]:
    """`A, B and C requirements for D`."""
    bare = question.without(_LEAD)
    found = _ASPECT.search(bare.mask)
    if not found or not found["preposition"]:
        return []
    shared = bare.text[found.start("noun") :]
    return [f"{item} {shared}" for item in _items(bare.part(0, found.start()))]


def _list_behind(question: _Text) -> list[str]:
    """`requirements for A, B and C`."""
    bare = question.without(_LEAD)
    found = _ASPECT_OF.match(bare.mask)
    if not found:
        return []
    return [f"{bare.text[: found.end()]}{item}" for item in _items(bare.part(found.end()))]


def _list_alone(question: _Text) -> list[str]:
    """`Explain A, B and C`, or names of which each is made of initials."""
    names_things = _NAMES_THINGS.match(question.mask)
    items = _items(question.without(_LEAD))
    if names_things or all(map(_INITIALS.fullmatch, items)):
        return items
    return []


def _items(head: _Text) -> list[str]:
    """Of a list that is surely one: three or more with commas and a last `and`, or two that are made of initials."""
    if len(head.cut(_ANY_AND)) != 2 or _NO_LIST.search(head.mask):
        return []
    items = [_item(one) for one in head.cut(_LISTED)]
    if len(items) == 2:
        return items if all(map(_INITIALS.fullmatch, items)) else []
    is_list = 2 < len(items) <= _ITEMS_MAX and all(map(_is_listed, items)) and _is_closed(head)
    return items if is_list and not _begins_before(items) else []


def _is_listed(item: str) -> bool:
    return _can_stand_alone(item) and len(item.split()) <= _LISTED_WORDS_MAX and not _NO_ITEM.match(item)


def _begins_before(items: list[str]) -> bool:
    """`a firm of our nature, size and complexity`: the list is of what follows the `of`, and of one thing."""
    first, *others = (bool(_INNER_PREPOSITION.search(item)) for item in items)
    return first and not any(others)


def _is_closed(head: _Text) -> bool:
    """Whether the `and` comes with the last of the list: commas alone do not make one."""
    return len(head.cut(_ANY_AND)[-1].cut(_COMMA)) == 1
