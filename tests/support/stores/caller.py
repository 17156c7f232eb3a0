"""A caller of the server's commands, and a plain model of what they must do, to compare the two."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import pytest

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.access import Principal
from drillcore_server.kernel.account_model import EVERYTHING
from drillcore_server.kernel.corpus_model import Corpus, Tenant
from drillcore_server.kernel.corpus_store import CORPUS, TENANT
from drillcore_server.kernel.errors import Refused, Unavailable
from drillcore_server.kernel.unit import OUTCOME, Call, Unit
from drillcore_server.storage.ids import CorpusId, PrincipalId, RequestId, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.spaces import Space, below
from drillcore_server.tenancy.corpora import create_corpus, delete_corpus, update_corpus
from drillcore_server.tenancy.tenants import create_tenant, delete_tenant, update_tenant
from tests.support.stores.keyspaces import keyspace_in

T = TypeVar("T")
OPERATOR = Principal(PrincipalId("operator"), None, grants=EVERYTHING)
_START = datetime(2026, 1, 1, tzinfo=UTC)
_NAMES = ["alpha", "beta", "gamma"]
_TRIES_MAX = 200
OUTCOME_OPEN = {Reason.OUTCOME_UNKNOWN, Reason.DEADLINE_EXCEEDED}


def ask(call: Call, command: Callable[[Call], T]) -> T:
    """Sends the same request with the same id, each time later, until it is answered, as a client does."""
    for number in range(_TRIES_MAX):
        try:
            return command(replace(call, at=call.at + timedelta(seconds=number)))
        except Unavailable as refused:
            if refused.reason not in OUTCOME_OPEN:
                raise
    raise AssertionError(f"no answer in {_TRIES_MAX} tries")


def make_call(dice: random.Random, number: int, action: str) -> Call:
    return Call(
        action=action,
        request_id=RequestId(f"request-{number}-{dice.getrandbits(64):x}"),
        principal=OPERATOR,
        at=_START + timedelta(hours=number),
        timeout_s=30.0,
        fingerprint=hashlib.sha256(f"{action}/{number}".encode()).digest(),
    )


@dataclass
class Model:
    """What the store must hold after the requests so far: a tenant, its corpora, and one outcome for each request."""

    tenant: Tenant
    corpora: dict[CorpusId, Corpus] = field(default_factory=dict)
    answered: dict[RequestId, bytes] = field(default_factory=dict)

    def living(self) -> list[Corpus]:
        return [corpus for corpus in self.corpora.values() if corpus.deleted_at is None]

    def name_taken(self, name: str) -> bool:
        return any(corpus.name == name for corpus in self.living())


class Session:
    """Seeded requests of one caller, each checked against the model as it is answered."""

    def __init__(self, unit: Unit, seed: int) -> None:
        self._unit = unit
        self._dice = random.Random(seed)
        self._number = 0
        self.model = Model(self._create_tenant(f"tenant-{seed}"))

    def run(self, requests: int) -> None:
        for _ in range(requests):
            self._dice.choice([self._create, self._create, self._update, self._update, self._delete, self._rename])()

    def end(self) -> None:
        """Deletes everything that is left, then the tenant."""
        for corpus in self.model.living():
            self._delete(corpus)
        call = self._call("DeleteTenant")
        gone = ask(call, lambda c: delete_tenant(self._unit, c, tenant_id=self.model.tenant.id, expected_version=None))
        assert gone.version == self.model.tenant.version + 1
        self._set_tenant(call, gone)

    def _call(self, action: str) -> Call:
        self._number += 1
        return make_call(self._dice, self._number, action)

    def _id(self) -> UUID:
        return UUID(int=self._dice.getrandbits(128))

    def _create_tenant(self, name: str) -> Tenant:
        call, tenant_id = self._call("CreateTenant"), TenantId(self._id())
        made = ask(call, lambda c: create_tenant(self._unit, c, name=name, metadata={}, tenant_id=tenant_id))
        assert (made.id, made.name, made.version) == (tenant_id, name, 1)
        self._first_answer = (call.request_id, TENANT.encode(made))
        return made

    def _rename(self) -> None:
        call, old = self._call("UpdateTenant"), self.model.tenant
        new_name = f"{old.name.partition('/')[0]}/{self._number}"
        new = ask(
            call,
            lambda c: update_tenant(
                self._unit,
                c,
                tenant_id=old.id,
                name=new_name,
                set_metadata={"request": call.request_id},
                remove_metadata=(),
                expected_version=None,
            ),
        )
        assert (new.name, new.version) == (new_name, old.version + 1)
        self._set_tenant(call, new)

    def _set_tenant(self, call: Call, tenant: Tenant) -> None:
        self.model.tenant = tenant
        self.model.answered[call.request_id] = TENANT.encode(tenant)

    def _create(self) -> None:
        """Without an id chosen by the caller: if the request ran twice, it would make two corpora."""
        call, name = self._call("CreateCorpus"), self._dice.choice(_NAMES)
        description = "x" * self._dice.choice([0, 10_000])

        def command(c: Call) -> Corpus:
            return create_corpus(
                self._unit,
                c,
                tenant=self.model.tenant.id,
                name=name,
                description=description,
                metadata={"request": call.request_id},
                corpus_id=None,
            )

        if self.model.name_taken(name):
            self._expect_refusal(Reason.CORPUS_EXISTS, call, command)
            return
        made = ask(call, command)
        assert made.id not in self.model.corpora
        assert (made.name, made.version) == (name, 1)
        self._set_corpus(call, made)

    def _update(self) -> None:
        living = self.model.living()
        if not living:
            return
        call, old = self._call("UpdateCorpus"), self._dice.choice(living)
        new_name = self._dice.choice([None, *_NAMES])

        def command(c: Call) -> Corpus:
            return update_corpus(
                self._unit,
                c,
                tenant=self.model.tenant.id,
                corpus_id=old.id,
                name=new_name,
                description=None,
                set_metadata={"request": call.request_id},
                remove_metadata=(),
                expected_version=None,
            )

        if new_name not in {None, old.name} and self.model.name_taken(str(new_name)):
            self._expect_refusal(Reason.CORPUS_EXISTS, call, command)
            return
        new = ask(call, command)
        assert (new.name, new.version) == (new_name or old.name, old.version + 1), "a request is applied exactly once"
        self._set_corpus(call, new)

    def _delete(self, corpus: Corpus | None = None) -> None:
        living = self.model.living()
        if not living:
            return
        call, old = self._call("DeleteCorpus"), corpus or self._dice.choice(living)

        def command(c: Call) -> Corpus:
            return delete_corpus(self._unit, c, tenant=self.model.tenant.id, corpus_id=old.id, expected_version=None)

        gone = ask(call, command)
        assert gone.version == old.version + 1
        assert gone.deleted_at is not None
        self._set_corpus(call, gone)

    def _set_corpus(self, call: Call, corpus: Corpus) -> None:
        self.model.corpora[corpus.id] = corpus
        self.model.answered[call.request_id] = CORPUS.encode(corpus)

    @staticmethod
    def _expect_refusal(reason: Reason, call: Call, command: Callable[[Call], Corpus]) -> None:
        with pytest.raises(Refused) as refused:
            ask(call, command)
        assert refused.value.reason is reason

    def expected_answers(self) -> dict[RequestId, bytes]:
        return dict([self._first_answer]) | self.model.answered


@dataclass(frozen=True)
class Stored:
    """Everything the store holds, by space. Parts of large values are put together."""

    tenants: dict[UUID, Tenant]
    tenant_names: dict[str, UUID]
    corpora: dict[UUID, Corpus]
    corpus_names: dict[tuple[UUID, str], UUID]
    outcomes: dict[str, bytes]
    outcome_times: list[str]
    records: set[bytes]
    """The place of each audit record: incarnation, bucket and versionstamp."""
    recorded: dict[bytes, bytes]
    """The place of each request's record."""


def read_everything(engine: Engine, keys: Keyspace) -> Stored:
    return engine.run(lambda tr: _read_everything(tr, keys))


def _read_everything(tr: Transaction, keys: Keyspace) -> Stored:
    spaces = keys._spaces

    def records(space: Space) -> list[tuple[tuple[object, ...], bytes]]:
        return [(spaces[space].unpack(key), value) for key, value in codec.scan(tr, *spaces[space].range())]

    def plain(space: Space) -> list[tuple[tuple[object, ...], bytes]]:
        return [(spaces[space].unpack(key), value) for key, value in tr.range(*spaces[space].range())]

    return Stored(
        tenants={key[0]: TENANT.decode(value) for key, value in records(Space.TENANTS)},
        tenant_names={key[0]: UUID(bytes=value) for key, value in plain(Space.TENANT_NAMES)},
        corpora={key[1]: CORPUS.decode(value) for key, value in records(Space.CORPORA)},
        corpus_names={(key[0], key[1]): UUID(bytes=value) for key, value in plain(Space.CORPUS_NAMES)},
        outcomes={key[1]: OUTCOME.decode(value).result for key, value in records(Space.REQUESTS)},
        outcome_times=[key[2] for key, _ in plain(Space.REQUEST_TIMES)],
        records={key[-15:] for key, _ in tr.range(*below(keys._prefixes[Space.AUDIT_RECORDS]))},
        recorded={
            key[-16:]: value[10:15] + value[:10]
            for key, value in tr.range(*below(keys._prefixes[Space.AUDIT_REQUESTS]))
        },
    )


def check_whole(stored: Stored) -> None:
    """Asserts that nothing is half done: names and records agree, and every outcome has its time."""
    living = {tenant.name: tenant.id for tenant in stored.tenants.values() if tenant.deleted_at is None}
    assert stored.tenant_names == living
    named = {(c.tenant_id, c.name): c.id for c in stored.corpora.values() if c.deleted_at is None}
    assert stored.corpus_names == named
    assert sorted(stored.outcome_times) == sorted(stored.outcomes)
    assert len(stored.recorded) >= len(stored.outcomes), "every request has its audit record"
    assert stored.records == set(stored.recorded.values()), "every record belongs to a request"
    assert len(stored.records) == len(stored.recorded)


def check_session(engine: Engine, keys: Keyspace, session: Session) -> None:
    """Asserts that the store holds exactly what the model says, with one record and one outcome for each request."""
    stored = read_everything(engine, keys)
    check_whole(stored)
    assert stored.tenants == {session.model.tenant.id: session.model.tenant}
    assert stored.corpora == session.model.corpora
    assert stored.outcomes == session.expected_answers()
    assert len(stored.records) == len(stored.outcomes), "there is one record for each request"


def open_keyspace(engine: Engine, name: str) -> Keyspace:
    return keyspace_in(engine, "faults", name)
