"""Which queries ask for several things, and the sub-queries they are split into."""

from __future__ import annotations

import time

import pytest

from drillcore_server.envelopes.decomposition import CHARACTERS_MAX, SUB_QUERIES_MAX, decompose

COMPARED = {
    "Compare the EU AI Act and GDPR approaches to automated decision-making": (
        "EU AI Act automated decision-making",
        "GDPR automated decision-making",
        "EU AI Act vs GDPR comparison",
    ),
    "compare and contrast GDPR and HIPAA requirements for breach notification.": (
        "GDPR requirements for breach notification",
        "HIPAA requirements for breach notification",
        "GDPR vs HIPAA comparison",
    ),
    "Compare how the EU AI Act and the GDPR treat automated decision-making": (
        "EU AI Act automated decision-making",
        "GDPR automated decision-making",
        "EU AI Act vs GDPR comparison",
    ),
    "Contrast GDPR, HIPAA, and CCPA approaches to consent": (
        "GDPR consent",
        "HIPAA consent",
        "CCPA consent",
        "GDPR vs HIPAA vs CCPA comparison",
    ),
    "Compare Annex 11 and Part 11 with regard to audit trails and signatures": (
        "Annex 11 audit trails and signatures",
        "Part 11 audit trails and signatures",
        "Annex 11 vs Part 11 comparison",
    ),
    'Compare "research and development" and "sales and marketing" in terms of cost': (
        '"research and development" cost',
        '"sales and marketing" cost',
        '"research and development" vs "sales and marketing" comparison',
    ),
    "Vergleiche die DSGVO und HIPAA hinsichtlich Einwilligung": (
        "die DSGVO Einwilligung",
        "HIPAA Einwilligung",
        "die DSGVO vs HIPAA comparison",
    ),
}
"""Together these sub-queries say all that the query says, so they replace it."""

BESIDE_THE_WHOLE = {
    "What is the difference between a controller and a processor under the GDPR?": (
        "controller under the GDPR",
        "processor under the GDPR",
        "controller vs processor comparison",
    ),
    "differences between electronic and digital signatures": (
        "electronic signatures",
        "digital signatures",
        "electronic signatures vs digital signatures comparison",
    ),
    "Unterschied zwischen Auftragsverarbeiter und Verantwortlicher": (
        "Auftragsverarbeiter",
        "Verantwortlicher",
        "Auftragsverarbeiter vs Verantwortlicher comparison",
    ),
    "différence entre responsable et sous-traitant": (
        "responsable",
        "sous-traitant",
        "responsable vs sous-traitant comparison",
    ),
    "How does the AI Act differ from the MDR regarding conformity assessment?": (
        "AI Act conformity assessment",
        "MDR conformity assessment",
        "AI Act vs MDR comparison",
    ),
    "How do retail clients compare with professional clients?": (
        "retail clients",
        "professional clients",
        "retail clients vs professional clients comparison",
    ),
    "GDPR vs. HIPAA": ("GDPR", "HIPAA", "GDPR vs HIPAA comparison"),
    "GDPR versus HIPAA breach notification": (
        "GDPR breach notification",
        "HIPAA breach notification",
        "GDPR vs HIPAA comparison",
    ),
    "What are the capital requirements for retail clients versus professional clients?": (
        "capital requirements for retail clients",
        "capital requirements for professional clients",
        "retail clients vs professional clients comparison",
    ),
    "Compare the Terms and Conditions with the Privacy Policy": (
        "Terms and Conditions",
        "Privacy Policy",
        "Terms and Conditions vs Privacy Policy comparison",
    ),
    "Compare the right to erasure and the right to object": (
        "right to erasure",
        "right to object",
        "right to erasure vs right to object comparison",
    ),
    "Compare Part 11 to Annex 11": ("Part 11", "Annex 11", "Part 11 vs Annex 11 comparison"),
    "Compare Health and Safety obligations for employers": (
        "Health obligations for employers",
        "Safety obligations for employers",
        "Health vs Safety comparison",
    ),
    "What is an audit trail? Who may see an audit trail? How long is an audit trail kept?": (
        "What is an audit trail?",
        "Who may see an audit trail?",
        "How long is an audit trail kept?",
    ),
    "What is the scope of the GDPR, and what qualifications must an auditor possess?": (
        "What is the scope of the GDPR",
        "what qualifications must an auditor possess",
    ),
    "Could you outline the approval of models and how long are backups kept?": (
        "Could you outline the approval of models",
        "how long are backups kept",
    ),
    "GDPR, HIPAA and CCPA requirements for consent": (
        "GDPR requirements for consent",
        "HIPAA requirements for consent",
        "CCPA requirements for consent",
    ),
    "What are the ISO 27001 and SOC 2 requirements for access control?": (
        "ISO 27001 requirements for access control",
        "SOC 2 requirements for access control",
    ),
    "What are the requirements for validation, audit trails, and electronic signatures?": (
        "requirements for validation",
        "requirements for audit trails",
        "requirements for electronic signatures",
    ),
    "Explain pseudonymisation, anonymisation and encryption": ("pseudonymisation", "anonymisation", "encryption"),
    "GDPR, HIPAA and CCPA": ("GDPR", "HIPAA", "CCPA"),
    "What is a breach? What are the GDPR and HIPAA rules on breaches?": (
        "What is a breach?",
        "GDPR rules on breaches",
        "HIPAA rules on breaches",
    ),
    "Compare GDPR and HIPAA approaches to consent. Use a table.": (
        "GDPR consent",
        "HIPAA consent",
        "GDPR vs HIPAA comparison",
    ),
    "We run a fund in Malta. GDPR vs. HIPAA": ("GDPR", "HIPAA", "GDPR vs HIPAA comparison"),
}

ONE_NEED = [
    "What is an electronic signature?",
    "electronic signatures",
    "Terms and Conditions",
    "Terms and Conditions of the licence",
    "Health and Safety requirements for employers",
    "Food and Drug Administration guidance on software",
    "R and D requirements for tax relief",
    '"GDPR, HIPAA and CCPA requirements for consent"',
    "the clause “GDPR vs HIPAA” in the contract",
    "the clause (compare GDPR versus HIPAA) in the contract",
    "Describe when and how firms must report",
    "Name the channel by which and when firms must report",
    "What is a breach, and who must be told of it?",
    "What is a breach of the GDPR, and what fines does the GDPR set?",
    "How must a firm plan for outages, and what measures are required?",
    "How must a firm plan for outages? Are there any specific requirements?",
    "What applies? Why is that so?",
    "What is a processor? Please cite the article.",
    "if required by law, regulation, or judicial process to disclose information",
    "Does it bind employees, directors or officers?",
    "requirements for firms, particularly with regard to records, as set out in Chapter 4",
    "risk assessments and controls for a company of our nature, size, and complexity",
    "Consider the agreement between TSE, OK, and WHK; does it mention that some obligations of the parties survive?",
    "How do the requirements for a Foreign Fund compare to those applicable to Domestic Funds?",
    "rules on consent and access, erasure",
    "Compare",
    "compare and contrast",
    "Compare retention periods",
    "Compare apples and oranges and pears and plums",
    "difference between",
    "vs",
    "GDPR vs",
    "Roe v. Wade",
    "?",
    "? ? ?",
    "...",
    "and",
    ", , and ,",
    "\u0000\ud800",
]


@pytest.mark.parametrize(("query", "parts"), COMPARED.items())
def test_a_comparison_gives_each_side_and_the_comparison(query: str, parts: tuple[str, ...]) -> None:
    assert decompose(query) == parts


@pytest.mark.parametrize(("query", "parts"), BESIDE_THE_WHOLE.items())
def test_several_needs_are_searched_beside_the_whole(query: str, parts: tuple[str, ...]) -> None:
    assert decompose(query) == (query, *parts)


@pytest.mark.parametrize("query", ONE_NEED)
def test_a_query_without_a_sign_of_several_needs_is_not_split(query: str) -> None:
    assert decompose(query) == (query,)


def test_white_space_is_made_single() -> None:
    assert decompose("  what\n is\t\u00a0a  fact? ") == ("what is a fact?",)


@pytest.mark.parametrize("query", ["", " \n\t\u3000"])
def test_an_empty_query_has_no_sub_queries(query: str) -> None:
    assert decompose(query) == ()


def test_there_are_never_more_than_eight_sub_queries() -> None:
    parts = decompose(" ".join(f"What is number {number}?" for number in range(30)))
    assert len(parts) == SUB_QUERIES_MAX
    assert parts[0].endswith("number 29?")


def test_the_same_question_twice_is_asked_once() -> None:
    query = "What is a fact? what is a FACT? What is a chunk?"
    assert decompose(query) == (query, "What is a fact?", "What is a chunk?")


def test_a_query_over_the_length_limit_is_not_split() -> None:
    text = ("What is a fact? " * CHARACTERS_MAX).strip()
    assert decompose(text) == (text,)


@pytest.mark.parametrize(
    "piece", ["compare ", "a, ", " and ", "what is ", "\u2018", "(", "GDPR ", "rules for ", "vs ", "how do ", "'", "? "]
)
def test_no_text_takes_long(piece: str) -> None:
    started = time.process_time()
    decompose("compare " + piece * (CHARACTERS_MAX // len(piece) - 8))
    assert time.process_time() - started < 1.0
