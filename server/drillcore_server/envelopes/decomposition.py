"""Splits a query into sub-queries by its form alone. No model is needed, and the same query gives the same parts.

    Compare the GDPR and HIPAA approaches to consent   -> GDPR consent; HIPAA consent; GDPR vs HIPAA comparison
    What is a processor? Who appoints one?             -> the whole; each question
    What is a breach, and who audits a processor?      -> the whole; each half
    GDPR, HIPAA and CCPA rules on consent              -> the whole; GDPR rules on consent; HIPAA rules on consent; ...

A wrong split costs recall, so a query is split only if its form shows that it asks for several things. The word "and"
alone does not show it, because it may be part of a name. Text in quotation marks or parentheses is never split. The
whole query is one of its parts, unless the parts of a comparison leave nothing out. The forms are English; the words
for "and" and "compare" may also be German or French.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

SUB_QUERIES_MAX: Final = 8
CHARACTERS_MAX: Final = 2_000
"""A longer query is a text and not a question. It stays whole."""
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
"""Nouns that the items of a comparison or list may share. With a capital they are part of a name: Privacy Policy."""
_EMPTY_ASPECT: Final = re.compile(r"(?:approach|position|view|stance|perspective|treatment|handling)", re.IGNORECASE)
"""Aspects that do not name a subject: of "approaches to consent", only "consent" is one."""
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
"""Does not match after an abbreviation, as in `vs. HIPAA`."""
_NEXT_QUESTION: Final = _form(
    rf"[,;]?\s+{_AND}\s+(?={_WH}(?:\s+[^\s,;]+){{0,5}}?\s+{_AUXILIARY}\b"
    rf"|{_AUXILIARY}\s+(?:the|an?|there|it|they|we|this|these|any)\b)"
)
_ASKS: Final = _form(rf"\b{_WH}\b|^{_AUXILIARY}\b")
_REFERS_BACK: Final = _form(
    r"\b(?:this|these|those|that|such(?! as\b)|it|them|they|if so|so|above|the same|the former)\b"
)
"""Words that refer to an earlier question. A part with such a word would find anything."""
_WORD: Final = re.compile(r"\w+")
_STEM_CHARACTERS: Final = 6
_ANY_QUESTION: Final = _form(
    rf"{_WH}|{_AUXILIARY}|{_PREPOSITION}|{_AND}|{_ASPECTS}|the|be|been|being|by|from|as|at|or|not|there|any|all|some"
    r"|our|we|you|your|their|they|them|its|it|specific|particular|provide|clarify|elaborate|explain|describe|outline"
    r"|detail\w*|example|examples|expect\w*|requir\w*|need\w*|ensur\w*|aware|follow\w*|appl(?:y|ies|icable)|place"
    r"|step|steps|measures?|practices?|process(?:es)?|document\w*|information|exceptions?|factors?|consider\w*"
    r"|include[ds]?|including|used?|uses|made|make|taken|take|given|give|between|within|also|other|more|best"
)
"""Words that any question may have, and that name no subject."""
_INCOMPLETE: Final = _form(rf"\b(?:{_WH}|{_PREPOSITION}|{_AND}|the|an?|or|if)$")

_COMPARE: Final = _form(
    r"(?:please\s+)?(?:compare and contrast|compare|contrast|comparez|comparer|vergleichen sie|vergleichen?)\s+"
)
_BETWEEN: Final = _form(
    r"\b(?:differences?|similarit(?:y|ies)|distinctions?|comparisons?|unterschiede?|différences?|distinguish\w*"
    r"|differentiat\w*)\s+(?:between|zwischen|entre)\s+"
)
_HOW_DIFFERENT: Final = _form(
    r"(?:how|in (?:what|which) ways?)\s+(?:do|does|did)\s+(?P<first>.+?)"
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
"""Signs that the commas separate clauses, not items of a list."""
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
    """A piece of the query, with a mask of the same length in which quoted and bracketed text is blotted out.

    Forms are searched in the mask, so that they never match inside quotation marks or brackets.
    """

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
        """Returns the text without white space and punctuation around it."""
        start = len(self.text) - len(self.text.lstrip(" ,;:.?!-"))
        return self.part(start, max(len(self.text.rstrip(" ,;:.?!-")), start))

    def without(self, opening: re.Pattern[str]) -> _Text:
        found = opening.match(self.mask)
        return self.part(found.end()) if found else self

    @property
    def words(self) -> int:
        return len(self.text.split())


def decompose(query: str) -> tuple[str, ...]:
    """Returns up to eight different sub-queries; only the query if it asks for a single thing, none if it is empty."""
    whole = " ".join(query.split())
    if not whole or len(whole) > CHARACTERS_MAX:
        return (whole,) if whole else ()
    if questions := _questions(_Text.of(whole)):
        return _finished(
            [whole, *(part for question in questions for part in (_parts(question.bare()) or [question.text]))]
        )
    bare = _Text.of(whole).bare()
    parts = _parts(bare)
    return _finished(parts if parts and _is_complete_comparison(bare) else [whole, *parts])


def _finished(parts: Iterable[str]) -> tuple[str, ...]:
    unique: dict[str, str] = {}
    for part in parts:
        text = " ".join(part.split())
        unique.setdefault(text.casefold(), text)
    return tuple(unique.values())[:SUB_QUERIES_MAX]


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _parts(question: _Text) -> list[str]:
    """Returns the parts of the first sentence that has any; none if the question asks for one thing or is unclear."""
    for sentence in question.cut(_END_OF_SENTENCE):
        bare = sentence.bare()
        if parts := _comparison(bare) or _next_questions(bare) or _listed(bare):
            return parts
    return []


def _is_complete_comparison(question: _Text) -> bool:
    """Tells whether the parts leave nothing out: the question begins with the verb and names items and respect."""
    found = _COMPARE.match(question.mask)
    if not found or _END_OF_SENTENCE.search(question.mask):
        return False
    head, respect = _compared(question.part(found.end()))
    return bool(respect) and len(head.cut(_WITH)) == 1 and not _may_be_name([_item(side) for side in _sides(head)])


def _may_be_name(items: list[str]) -> bool:
    """Tells whether two items may be one name, such as Terms and Conditions or Health and Safety."""
    return len(items) == 2 and not any(" " in item or _INITIALS.fullmatch(item) for item in items)


def _comparison(question: _Text) -> list[str]:
    if found := _COMPARE.match(question.mask):
        head, respect = _compared(question.part(found.end()))
        return _compare(_sides(head), respect)
    if found := _BETWEEN.search(question.mask):
        head, respect = _compared(question.part(found.end()))
        return _compare(_enumerated(head), respect)
    if found := _HOW_DIFFERENT.match(question.mask):
        second, respect = _within(question.part(found.end()))
        return _compare([question.part(*found.span("first")), second], respect)
    return _versus(question)


def _compare(sides: list[_Text], respect: str) -> list[str]:
    """Returns a sub-query for each side, and one for the comparison."""
    items = _shared_noun([_item(side) for side in sides])
    if not 2 <= len(items) <= _ITEMS_MAX or not all(map(_can_stand_alone, items)):
        return []
    return [*(f"{item} {respect}" for item in items), f"{' vs '.join(items)} comparison"]


def _compared(rest: _Text) -> tuple[_Text, str]:
    """Returns the items that are compared, and the respect in which they are; empty if it is not named."""
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
    """Returns `requirements for consent` unchanged; of `approaches to consent`, only the subject."""
    start = found.end() if _EMPTY_ASPECT.match(found["noun"]) else found.start("noun")
    return rest.text[start:]


def _within(rest: _Text) -> tuple[_Text, str]:
    """Splits off a respect that holds for all items: `under the GDPR` in `a controller and a processor under the GDPR`.

    Splits nothing if the first item has such a phrase of its own.
    """
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
    """Splits by the first of these forms that matches: `A vs B`, `A with B`, `A, B and C`, `A to B`."""
    for separator in (_VERSUS, _WITH):
        if len(sides := head.cut(separator)) == 2:
            return sides
    if len(sides := _enumerated(head)) > 1:
        return sides
    return sides if len(sides := head.cut(_TO)) == 2 and len(head.cut(_LISTED)) == 1 else []


def _enumerated(head: _Text) -> list[_Text]:
    """Splits `A and B`, or `A, B and C`. Splits nothing if there are several `and`: one may be part of a name."""
    if len(head.cut(_ALONE_AND)) > 2:
        return []
    return head.cut(_LISTED)


def _item(side: _Text) -> str:
    return side.bare().without(_ARTICLE).without(_ARTICLE).bare().text


def _can_stand_alone(item: str) -> bool:
    return _has_words(item) and len(item.split()) <= _ITEM_WORDS_MAX and not _PRONOUN.match(item)


def _shared_noun(items: list[str]) -> list[str]:
    """Gives all items the noun of the last: `electronic and digital signatures` are electronic signatures and digital
    signatures."""
    last = items[-1].split() if items else []
    if len(last) < 2 or not last[-1].islower():
        return items
    return [f"{item} {last[-1]}" if _lacks_its_noun(item) else item for item in items]


def _lacks_its_noun(item: str) -> bool:
    return len(item.split()) == 1 and item.islower() and item.endswith(_ADJECTIVE_ENDINGS)


def _versus(question: _Text) -> list[str]:
    """Splits `A vs B` with the respect before or after: `capital rules for A vs B`, `GDPR vs HIPAA consent`."""
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
    return [*(f"{before} {part}" for part in compared[:-1]), *compared[-1:]]


def _name_and_respect(first: _Text, last: _Text) -> tuple[_Text, str]:
    """Splits the last side into its name and the respect: in `GDPR vs HIPAA breach notification`, after HIPAA."""
    found = _NAME.match(last.mask)
    if found and _NAME.fullmatch(first.mask) and found.end() < len(last.mask):
        return last.part(0, found.end()), last.text[found.end() :].strip()
    found = _IN_TERMS_OF.search(last.mask)
    if found:
        return last.part(0, found.start()), last.text[found.end() :]
    return last, ""


def _questions(query: _Text) -> list[_Text]:
    """Splits `What is A? Who does B?` into the questions that make sense alone; none if there are fewer than two."""
    asked = [text for text in query.cut(_END_OF_QUESTION) if text.text.endswith("?") and _has_words(text.text)]
    alone = [text for text in asked if not _REFERS_BACK.search(text.mask) and _subjects(text)]
    return alone if len(alone) > 1 else []


def _next_questions(question: _Text) -> list[str]:
    """Splits `What is A, and who does B?`, but not `when and how` or `what is A, and why is A`."""
    pieces = [piece.bare() for piece in question.cut(_NEXT_QUESTION)]
    if len(pieces) < 2 or not _ASKS.search(pieces[0].mask) or any(_INCOMPLETE.search(piece.mask) for piece in pieces):
        return []
    if any(_REFERS_BACK.search(piece.mask) for piece in pieces[1:]) or not _differ(pieces):
        return []
    return [piece.text for piece in pieces]


def _differ(pieces: list[_Text]) -> bool:
    """Tells whether the pieces name different subjects. Otherwise the whole question finds the same, and better."""
    subjects = [_subjects(piece) for piece in pieces]
    return all(subjects) and len(frozenset().union(*subjects)) == sum(map(len, subjects))


def _subjects(piece: _Text) -> frozenset[str]:
    """Returns the beginnings of the words, without words that any question has."""
    words = _WORD.findall(piece.text.lower())
    return frozenset(word[:_STEM_CHARACTERS] for word in words if len(word) > 2 and not _ANY_QUESTION.fullmatch(word))


def _listed(question: _Text) -> list[str]:
    return _list_before(question) or _list_after(question) or _list_alone(question)


def _list_before(question: _Text) -> list[str]:
    """Splits `A, B and C requirements for D`."""
    bare = question.without(_LEAD)
    found = _ASPECT.search(bare.mask)
    if not found or not found["preposition"]:
        return []
    shared = bare.text[found.start("noun") :]
    return [f"{item} {shared}" for item in _items(bare.part(0, found.start()))]


def _list_after(question: _Text) -> list[str]:
    """Splits `requirements for A, B and C`."""
    bare = question.without(_LEAD)
    found = _ASPECT_OF.match(bare.mask)
    if not found:
        return []
    return [f"{bare.text[: found.end()]}{item}" for item in _items(bare.part(found.end()))]


def _list_alone(question: _Text) -> list[str]:
    """Splits `Explain A, B and C`, and lists of names that are all initials."""
    names_things = _NAMES_THINGS.match(question.mask)
    items = _items(question.without(_LEAD))
    if names_things or all(map(_INITIALS.fullmatch, items)):
        return items
    return []


def _items(head: _Text) -> list[str]:
    """Returns the items of a clear list: three or more with commas and a last `and`, or two that are initials."""
    if len(head.cut(_ANY_AND)) != 2 or _NO_LIST.search(head.mask):
        return []
    items = [_item(text) for text in head.cut(_LISTED)]
    if len(items) == 2:
        return items if all(map(_INITIALS.fullmatch, items)) else []
    is_list = 2 < len(items) <= _ITEMS_MAX and all(map(_is_listed, items)) and _is_closed(head)
    return items if is_list and not _begins_before(items) else []


def _is_listed(item: str) -> bool:
    return _can_stand_alone(item) and len(item.split()) <= _LISTED_WORDS_MAX and not _NO_ITEM.match(item)


def _begins_before(items: list[str]) -> bool:
    """Tells whether the list begins inside the first item, as in `a firm of our nature, size and complexity`."""
    first, *others = (bool(_INNER_PREPOSITION.search(item)) for item in items)
    return first and not any(others)


def _is_closed(head: _Text) -> bool:
    """Tells whether the `and` comes before the last item. Commas alone do not make a list."""
    return len(head.cut(_ANY_AND)[-1].cut(_COMMA)) == 1
