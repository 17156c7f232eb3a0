"""Finds references to regulations: "21 CFR 11.10(e)", "Article 17 GDPR", "Rule 3.2.1", "Companies Act 2006"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from drillcore_server.documents.processors.entities.names import Run, without_opening
from drillcore_server.documents.processors.entities.values import GAP, UPPER, Mention, holds_any, tidy
from drillcore_server.documents.processors.keywords import word_set

_SUBPARTS: Final = r"(?:\((?:[0-9]{1,3}|[A-Za-z]{1,5})\)){0,6}"
_NUMBER: Final = rf"[0-9]{{1,5}}[a-zA-Z]?(?:[.-][0-9]{{1,5}}[a-zA-Z]?){{0,5}}{_SUBPARTS}"
_ACRONYMS: Final = (
    "GDPR",
    "HIPAA",
    "CCPA",
    "DORA",
    "MiFID II",
    "MiFIR",
    "MiFID",
    "PSD2",
    "NIS2",
    "FSMR",
    "TFEU",
    "TEU",
)
_ANY_ACRONYM: Final = rf"(?:{'|'.join(_ACRONYMS)})\b"
_EUROPEAN: Final = (
    rf"(?:Regulation|Directive|Decision){GAP}(?:\([A-Z]{{2,7}}(?:, ?[A-Z]{{2,7}}){{0,2}}\){GAP})?"
    rf"(?:No\.?{GAP})?[0-9]{{2,4}}/[0-9]{{1,4}}(?:/[A-Z]{{2,7}})?"
)
_ACT_WORDS: Final = word_set(
    "Act Acts Regulation Regulations Directive Code Law Rules Rulebook Constitution Convention Treaty"
)
_NAMED_ACT: Final = (
    rf"(?:[{UPPER}][\w'\u2019-]{{0,30}}\s(?:(?:and|of|on|for|in|to)\s(?:the\s)?)?){{1,6}}"
    rf"(?:{'|'.join(sorted(_ACT_WORDS))})\b"
)
_YEAR: Final = r"(?:\s(?:of\s)?(?P<year>[12][0-9]{3})(?![0-9]))?"
_YEAR_AFTER: Final = re.compile(_YEAR)
_OF_WHAT: Final = rf"(?:{GAP}(?:of{GAP}(?:the{GAP})?)?(?P<of>{_ANY_ACRONYM}|{_EUROPEAN}|(?<=the ){_NAMED_ACT}{_YEAR}))?"


@dataclass(frozen=True, slots=True)
class _Form:
    """One way to refer to a regulation. The pattern is tried only if the text contains one of `needs`."""

    needs: tuple[str, ...]
    pattern: re.Pattern[str]
    value: Callable[[re.Match[str]], str]
    needs_capitals: tuple[str, ...] = ()
    """The same as `needs`, for words of three or more capitals."""

    def may_be_in(self, text: str, capitals: str) -> bool:
        return holds_any(capitals, self.needs_capitals) or holds_any(text, self.needs)


def _numbered(kind: str) -> Callable[[re.Match[str]], str]:
    def value(found: re.Match[str]) -> str:
        of = _without_no(tidy(found["of"] or ""))
        if not of:
            return f"{kind} {found['number']}"
        joint = " " if of in _ACRONYMS else " of " if "/" in of else " of the "
        return f"{kind} {found['number']}{joint}{of}"

    return value


def _codified(found: re.Match[str]) -> str:
    code = found["code"].replace(".", "").replace(" ", "")
    part = "Part " if (found["part"] or "").lower().startswith("p") else ""
    return f"{found['title']} {code} {part}{found['number']}"


def _european(found: re.Match[str]) -> str:
    return _without_no(tidy(found[0]))


def _without_no(name: str) -> str:
    """Removes the "No" from names such as "Regulation (EC) No 45/2001", which are cited with and without it."""
    return name.replace(" No. ", " ").replace(" No ", " ")


def _standard(found: re.Match[str]) -> str:
    return f"{found['body']} {found['number']}"


def _whole(found: re.Match[str]) -> str:
    return found[0]


# Each pattern begins with a literal or a class of characters, so that the search can skip ahead. A check after these
# characters makes sure that the match does not begin inside a word.
_FORMS: Final = (
    _Form(
        ("C.F.R", "U.S.C"),
        re.compile(
            rf"(?P<title>[0-9](?<![\w.].)[0-9]?){GAP}(?P<code>C\.?F\.?R\.?|U\. ?S\. ?C\.?|USC){GAP}"
            rf"(?P<part>[Pp]arts?{GAP}|§{{1,2}}{GAP}?|[Ss]ections?{GAP})?(?P<number>{_NUMBER})"
        ),
        _codified,
        ("CFR", "USC"),
    ),
    _Form(
        ("Art",),
        re.compile(rf"Art(?<!\wArt)(?:icles?|s?\.){GAP}?(?P<number>{_NUMBER}){_OF_WHAT}"),
        _numbered("Article"),
    ),
    _Form(
        ("§",),
        re.compile(rf"§(?<!CFR §)(?<!R\. §)(?<!C\. §)(?<!§§)§?{GAP}?(?P<number>{_NUMBER})(?P<of>)"),  # not a code's
        _numbered("§"),
    ),
    _Form(
        ("ection", "Sec."),
        re.compile(rf"ec(?<=[Ss]ec)(?<!\w.ec)(?:tions?|s?\.){GAP}(?P<number>{_NUMBER}){_OF_WHAT}"),
        _numbered("Section"),
    ),
    _Form(("Rule",), re.compile(rf"Rule(?<!\wRule)s?{GAP}(?P<number>{_NUMBER}){_OF_WHAT}"), _numbered("Rule")),
    _Form(("Regulation ", "Directive ", "Decision "), re.compile(_EUROPEAN), _european),
    _Form((), re.compile(r"(?P<body>RFC(?<!\wRFC))[ -]?(?P<number>[0-9]{1,5})(?![0-9])"), _standard, ("RFC",)),
    _Form(
        (),
        re.compile(
            r"(?P<body>ISO(?:/IEC)?|IEC|NIST SP)(?:[ -](?:TS|TR))?[ -]?"
            r"(?P<number>[0-9]{2,5}(?:-[0-9]{1,4})?(?::[12][0-9]{3})?)(?![0-9])"
        ),
        _standard,
        ("ISO", "NIST", "IEC"),
    ),
    _Form(
        ("PSD2", "NIS2"),
        re.compile(rf"\b{_ANY_ACRONYM}"),
        _whole,
        ("GDPR", "HIPAA", "CCPA", "DORA", "FID", "FIR", "FSMR", "TFEU", "TEU"),
    ),
)


def regulations(text: str, runs: Sequence[Run], capitals: str) -> Iterator[Mention]:
    for form in _FORMS:
        if form.may_be_in(text, capitals):
            for found in form.pattern.finditer(text):
                yield Mention(found.start(), "regulation", form.value(found))
    for run in runs:
        if not _ACT_WORDS.isdisjoint(run.words):
            yield from _acts(text, run)


def _acts(text: str, run: Run) -> Iterator[Mention]:
    """Yields names that end with "Act" or the like. A year after the run belongs to the last name in it."""
    first = 0
    for place, word in enumerate(run.words):
        last = place + 1 == len(run.words)
        if word in _ACT_WORDS and (last or run.words[place + 1] not in ("of", "on", "for", *_ACT_WORDS)):
            name = without_opening(run.words[first : place + 1])
            first = place + 1
            if len(name) > 1:
                year = _YEAR_AFTER.match(text, run.end) if last else None
                written = " ".join(name) + (f" {year['year']}" if year and year["year"] else "")
                yield Mention(run.start, "regulation", written)
