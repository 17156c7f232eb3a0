"""Small texts like regulations: eight subjects that differ, and as many notices as a test needs."""

from __future__ import annotations

from typing import Final

REGULATIONS: Final[dict[str, str]] = {
    "records.txt": """Electronic records and signatures

A firm that keeps electronic records shall validate its systems to ensure accuracy and consistent performance, as
21 CFR 11.10(a) requires. Records must be protected to enable their accurate and ready retrieval throughout the
retention period of 7 years.

Audit trails shall be secure, computer-generated and time-stamped. Record changes shall not obscure previously
recorded information. See 21 CFR 11.10(e) for the full text.

Each electronic signature shall be unique to one individual and shall not be reassigned to anyone else.
""",
    "privacy.txt": """Protection of personal data

The data subject shall have the right to obtain from the controller the erasure of personal data without undue
delay, under Article 17 GDPR. The controller must answer within 30 days.

A breach of personal data shall be notified to the supervisory authority not later than 72 hours after the
controller has become aware of it. Fines may reach EUR 20,000,000. Questions go to privacy@example.org.

Personal data may not be kept for longer than the purpose of the processing needs.
""",
    "trials.txt": """Safety reports in clinical trials

The sponsor shall report every suspected unexpected serious adverse reaction that is fatal to the ethics committee
within 7 days. Other reactions must be reported within 15 days.

The investigator shall obtain informed consent of each participant before any procedure of the trial begins.
Participants may withdraw from the clinical trial at any time without a reason.

The trial master file shall be kept for 25 years after the end of the clinical trial.
""",
    "laundering.txt": """Prevention of money laundering

A bank shall identify its customer before it opens an account or carries out a transaction of EUR 15,000 or more.
Anonymous accounts are prohibited.

A suspicious transaction must be reported to the financial intelligence unit before it is carried out. The bank
shall not tell the customer that a report was made.

Beneficial owners holding more than 25 % of the shares shall be recorded in the central register by 1 March 2024.
""",
    "aviation.txt": """Maintenance of aircraft

No aircraft shall be operated unless an authorised engineer has released it to service after maintenance. The
release shall be entered in the technical log of the aircraft.

Engine oil must be sampled every 50 flight hours. Turbine blades shall be inspected with a borescope every 600
flight hours, and a cracked blade shall be replaced before the next flight.

The operator shall keep maintenance records of an airframe until 24 months after its withdrawal from service.
""",
    "food.txt": """Hygiene of foodstuffs

Chilled meat shall be stored at no more than 7 degrees and fresh fish on melting ice. Rooms in which food is
prepared must be cleaned and disinfected daily.

Persons who suffer from a disease that can be transmitted through food shall not handle food in the kitchen.

A food business operator shall withdraw unsafe food from the market at once and inform consumers about the reason.
""",
    "emissions.txt": """Emissions of large boilers

The emission of sulphur dioxide from a boiler shall not exceed 35 mg per cubic metre, and that of dust 5 mg. The
operator must measure emissions to the air continuously.

Monitoring results shall be sent to the environment agency by 31 January of each year. If a filter fails, the
operator shall reduce the load of the boiler or shut it down within 24 hours.

A permit for a boiler lapses when it has not been operated for 3 years.
""",
    "railways.txt": """Signals and brakes of railways

A train shall not pass a signal at danger without the written permission of the signaller. Drivers must sound the
horn at every level crossing without barriers.

The brakes of each wagon shall be tested before a train departs, and the test shall be noted on the brake sheet.

Track geometry shall be measured every 6 months on lines with more than 160 km per hour.
""",
}

_SUBJECTS: Final = ("vaccines", "bridges", "pensions", "lifts", "fisheries", "fireworks", "seeds", "dams")
_PLACES: Final = ("Lisbon", "Oslo", "Riga", "Turin", "Ghent", "Cork")


def notice(number: int, paragraphs: int = 2) -> str:
    """A notice that differs from those with other numbers."""
    subject, place = _SUBJECTS[number % len(_SUBJECTS)], _PLACES[number % len(_PLACES)]
    opening = f"Notice {number} of the office for {subject}\n\n"
    return opening + "\n\n".join(
        f"Under paragraph {number}.{p} the inspector of {subject} in {place} shall examine case {number * 97 + p} "
        f"within {number % 28 + 2} days. Whoever keeps {subject} must report defect {p} of kind {number % 5} to the "
        f"office in {place} and shall pay EUR {1_000 + number * 10 + p} if the report on {subject} is late."
        for p in range(1, paragraphs + 1)
    )
