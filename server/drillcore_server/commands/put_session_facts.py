"""PutFacts with no-store: facts that are kept in the caller's session, and make no revision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_changing import FactDesk
from drillcore_server.commands.fact_sessions import FactSessions
from drillcore_server.commands.put_facts import PUT_FACTS, DraftedFacts, PutFacts
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput, Exists
from drillcore_server.domain.fact_drafts import FactDraft, check_drafts
from drillcore_server.domain.fact_sessions import FactSession, OwnSession, SessionFact
from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.domain.nodes import Level
from drillcore_server.store import fact_sessions
from drillcore_server.store.keyring import KeyNumber
from drillcore_server.store.sealed import SealedKind


def put_session_facts(
    desk: FactDesk,
    sessions: FactSessions,
    call: Call,
    target: Target,
    drafts: Sequence[FactDraft],
    embedding_model: str,
    session: str,
) -> PutFacts:
    """Keeps facts in the caller's session: all or none. The corpus is as it was; its revision is told."""
    check_drafts(drafts)
    begun = desk.ingester.reviser.begin(call, target, PUT_FACTS)
    if begun.known is not None:
        return begun.known
    drafted = DraftedFacts(desk, call, drafts, embedding_model)
    facts = drafted.made(begun.corpus, begun.head)
    desk.ingester.models(begun.corpus, begun.head).after(drafted.model)  # refuses another model's
    made = [SessionFact(begun.corpus.id, *one) for one in facts]
    own = OwnSession(begun.corpus.tenant_id, call.principal.id, session)
    sources = sessions.source_keys(begun.corpus.number, {one.fact.source for one in made})
    putting = _Putting(sessions, call, target, own, made, sources, begun.head)
    kind = SealedKind(PUT_FACTS, sessions.sealed, call.request_id, desk.ingester.make_keys(begun.corpus, []))
    return sessions.unit.write(call, target.access, kind, putting.work)


class _Putting:
    """The key of a new session is made once, however often the work is run."""

    def __init__(
        self,
        sessions: FactSessions,
        call: Call,
        target: Target,
        own: OwnSession,
        made: Sequence[SessionFact],
        sources: Mapping[SourceId, KeyNumber],
        revision: Revision,
    ) -> None:
        self._sessions = sessions
        self._call = call
        self._target = target
        self._own = own
        self._made = made
        self._revision = revision
        self._sources = sources
        self._new: FactSession | None = None

    def work(self, tr: Transaction, granted: InTenant, trail: Trail) -> PutFacts:
        keys = self._sessions.unit.keys
        corpus = granted.corpus(tr, keys, self._target.corpus)
        granted.check_level(corpus.id, *Level)
        session = self._session(tr)
        self._check(tr, session)
        fact_sessions.add(tr, keys, self._sessions.sealed, session, self._made, self._sources)
        self._leave_trail(trail, corpus)
        return PutFacts(tuple(one.fact.id for one in self._made), self._revision)

    def _session(self, tr: Transaction) -> FactSession:
        """The session, which ends later now; begun if it does not stand."""
        keys, now = self._sessions.unit.keys, self._call.at
        session = fact_sessions.find(tr, keys, self._own, now)
        if session is not None:
            return fact_sessions.renew(tr, keys, session, now + self._sessions.idle)
        self._new = self._new or self._sessions.new(self._own, now)
        fact_sessions.begin(tr, keys, self._new)
        return self._new

    def _check(self, tr: Transaction, session: FactSession) -> None:
        if session.facts + len(self._made) > self._sessions.facts_max:
            message = f"a session keeps at most {self._sessions.facts_max} facts; end it, or take another"
            raise BadInput(Reason.TOO_LARGE, message, field="session_id")
        for one in self._made:
            if fact_sessions.has(tr, self._sessions.unit.keys, self._own, one.fact.id):
                message = f"the session has a fact {one.fact.id} already"
                raise Exists(Reason.NODE_EXISTS, message, node=str(one.fact.id))

    def _leave_trail(self, trail: Trail, corpus: Corpus) -> None:
        trail.touch_corpus(corpus.id, self._revision)
        trail.touch_facts((one.fact for one in self._made), corpus.number)
        trail.detail["session_facts"] = len(self._made)
