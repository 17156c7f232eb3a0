"""UpdateFact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from drillcore_proto.reasons import Reason
from drillcore_server.commands.fact_changing import ChangedFact, Embedded, FactDesk
from drillcore_server.commands.revise import Plan
from drillcore_server.commands.unit import Call
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.durations import check_duration
from drillcore_server.domain.embeddings import Model
from drillcore_server.domain.errors import BadInput, NotReady, Stale
from drillcore_server.domain.fact_drafts import check_importance, check_location, check_tokens
from drillcore_server.domain.facts import Fact, FactChange, FactStatus, fact_hash
from drillcore_server.domain.ids import FactId, Revision, TenantId
from drillcore_server.domain.named import changed_metadata
from drillcore_server.ingest.client_made import client_vector
from drillcore_server.store.facts import packed
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class FactUpdate:
    """What a fact is to be. What is None stays."""

    content: str | None = None
    source_location: str | None = None
    importance: float | None = None
    ttl: str | None = None
    """Empty: none from now on."""
    set_metadata: Mapping[str, str] = field(default_factory=dict)
    remove_metadata: Sequence[str] = ()
    expected_version: int | None = None
    embedding: tuple[float, ...] = ()
    embedding_model: str = ""


@dataclass(frozen=True, slots=True)
class UpdatedFact:
    version: int
    revision: Revision


UPDATED_FACT = RecordKind(UpdatedFact)


class _Unchanged(Exception):  # noqa: N818 - a turn of events, not an error
    def __init__(self, corpus: Corpus, updated: UpdatedFact) -> None:
        super().__init__()
        self.corpus = corpus
        self.updated = updated


def update_fact(
    desk: FactDesk, call: Call, *, tenant: TenantId | None, fact: FactId, update: FactUpdate
) -> UpdatedFact:
    """Changes a fact as one revision; earlier revisions keep it as it was. Without a change there is no revision."""
    _check(update)
    target = desk.target(call, tenant, [fact])
    begun = desk.ingester.reviser.begin(call, target, UPDATED_FACT)
    if begun.known is not None:
        return begun.known
    made = _Update(desk, call, fact, update)
    try:
        return desk.ingester.reviser.revise(call, target, UPDATED_FACT, made.plan)
    except _Unchanged as unchanged:
        number = desk.ingester.make_keys(unchanged.corpus, [])
        return desk.ingester.reviser.leave(call, target, UPDATED_FACT, number, unchanged.updated)


def _check(update: FactUpdate) -> None:
    check_importance(update.importance, "the fact")
    check_location(update.source_location or "", "the fact")
    if update.ttl:
        check_duration(update.ttl, "ttl")
    if bool(update.embedding) != bool(update.embedding_model) or (update.embedding and update.content is None):
        message = "an embedding comes with new content and with the name of the model that made it"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding")


class _Update:
    """Tokens are counted once, however often the plan is."""

    def __init__(self, desk: FactDesk, call: Call, fact: FactId, update: FactUpdate) -> None:
        self._desk = desk
        self._call = call
        self._fact = fact
        self._update = update
        self._tokens = 0
        if update.content is not None:
            self._tokens = desk.counter.count(update.content)
            check_tokens(self._tokens, "the fact")

    def plan(self, corpus: Corpus, base: Revision) -> Plan[UpdatedFact]:
        (before,) = self._desk.facts(corpus, base, [self._fact])
        _check_changeable(before, self._update.expected_version)
        after, what = self._changed(before)
        if not what:
            raise _Unchanged(corpus, UpdatedFact(before.version, base))
        model: Model | None = None
        vector: bytes | None = None
        if what & FactChange.CONTENT:
            model, (vector,) = self._embedded(corpus, base, after.content)
            after = replace(after, embedding_model=model.name)
        change = ChangedFact(before, after, what, vector)
        return self._desk.plan(
            corpus, base, [change], lambda revision: UpdatedFact(after.version, revision), model=model
        )

    def _changed(self, before: Fact) -> tuple[Fact, FactChange]:
        update = self._update
        content = before.content if update.content is None else update.content
        changed = replace(
            before,
            content=content,
            content_hash=fact_hash(content),
            tokens=before.tokens if update.content is None else self._tokens,
            source_location=before.source_location if update.source_location is None else update.source_location,
            importance=before.importance if update.importance is None else update.importance,
            ttl=before.ttl if update.ttl is None else update.ttl,
            metadata=changed_metadata(before.metadata, update.set_metadata, update.remove_metadata),
        )
        if content != before.content:  # in the words of whoever says it now
            changed = replace(changed, leads=(), lead_characters=0)
        what = FactChange.CONTENT if changed.content_hash != before.content_hash else FactChange(0)
        if replace(changed, **_said(before)) != before:
            what |= FactChange.DETAILS
        return replace(changed, modified_at=self._call.at, version=before.version + 1), what

    def _embedded(self, corpus: Corpus, base: Revision, content: str) -> Embedded:
        if not self._update.embedding:
            return self._desk.embedded(corpus, base, [content])
        vector = client_vector(self._update.embedding, "embedding")
        return Embedded(Model(self._update.embedding_model, len(vector)), [packed(vector)])


def _said(fact: Fact) -> dict[str, Any]:
    """What it says, and what goes with that."""
    names = ("content", "content_hash", "tokens", "leads", "lead_characters")
    return {name: getattr(fact, name) for name in names}


def _check_changeable(fact: Fact, expected_version: int | None) -> None:
    if fact.status is FactStatus.DELETED:
        raise NotReady(Reason.ILLEGAL_TRANSITION, "a deleted fact is not changed any more")
    check_fact_version(fact, expected_version)


def check_fact_version(fact: Fact, expected: int | None) -> None:
    if expected is not None and fact.version != expected:
        message = f"the fact is at version {fact.version}, not {expected}; read it again"
        raise Stale(Reason.VERSION_MISMATCH, message, version=str(fact.version))
