"""A corpus that an operator shares with other tenants can be read by them, and nothing else."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from drillcore import (
    Client,
    Corpus,
    FactStatus,
    Grant,
    Level,
    NewDocument,
    NewFact,
    NotFound,
    Role,
    SignatureTarget,
    SignatureTargetKind,
    State,
)
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2, events_pb2
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.storage.store import open_store
from tests.support.callers.hierarchies import put, two_sections
from tests.support.callers.knowledge import Caller
from tests.support.data.texts import REGULATIONS
from tests.support.servers.people import administrator, make_person, make_service, refused
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, Running, create_tenants, running
from tests.support.servers.signatories import person
from tests.support.servers.two_tenants import BY_NAME, exchange
from tests.support.stores.trails import all_records

READERS = [Role.READER, Role.WRITER, Role.REVIEWER, Role.AUDITOR]


@dataclass(frozen=True)
class Regulations:
    """A corpus of globex that tests share with acme."""

    server: Running
    corpus: Corpus
    document: UUID
    nodes: dict[Level, UUID]
    fact: UUID
    operator: Client
    acme: Client
    globex: Client

    def share(self, **how: Any) -> Corpus:
        return self.operator.update_corpus(self.corpus.id, tenant_id=GLOBEX_ID, **how)

    def reader(self, *grants: Grant) -> Client:
        return self.server.client(make_service(self.server, *grants).token)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Regulations]:
    with running(tmp_path_factory.mktemp("sharing")) as server:
        operator = server.client()
        create_tenants(operator)
        acme, globex = server.client(ACME), server.client(GLOBEX)
        corpus = globex.create_corpus("regulations", metadata={"kind": "law"})
        texts = [NewDocument(name, text.encode()) for name, text in list(REGULATIONS.items())[:2]]
        globex.add_documents(corpus.id, texts)
        nodes = {level: globex.query(corpus_ids=[corpus.id], level=level).items[0].node.id for level in Level}
        document = globex.list_documents(corpus.id).items[0].id
        stored = globex.put_facts(corpus.id, [NewFact("Records of every batch are kept for ten years.", "law")])
        yield Regulations(server, corpus, document, nodes, stored.fact_ids[0], operator, acme, globex)


@pytest.fixture
def rules(made: Regulations) -> Iterator[Regulations]:
    """The corpus, shared with acme."""
    made.share(share_with=[ACME_ID])
    yield made
    made.share(stop_sharing=True)


def reads(rules: Regulations) -> dict[str, Callable[[Client], object]]:
    """Every way to read the corpus. Each call fails if the corpus is not found."""
    corpus, nodes = rules.corpus.id, rules.nodes
    return {
        "get_corpus": lambda who: who.get_corpus(corpus),
        "get_corpus by name": lambda who: who.get_corpus(name="regulations"),
        "list_corpora": lambda who: _first_of(listed for listed in who.iter_corpora() if listed.id == corpus),
        "get_document": lambda who: who.get_document(corpus, rules.document, with_text=True).text,
        "list_documents": lambda who: who.list_documents(corpus).items[0],
        "query": lambda who: who.query(level=Level.CHUNK, corpus_ids=[corpus], text="records").items[0],
        "query of everything": lambda who: _first_of(
            hit for hit in who.query(level=Level.MASTER).items if hit.node.corpus_id == corpus
        ),
        "drill_down": lambda who: who.drill_down(nodes[Level.MASTER], Level.RAW).items[0],
        "roll_up": lambda who: who.roll_up([nodes[Level.RAW]], Level.MASTER).common,
        "get_facts": lambda who: who.get_facts([rules.fact])[0],
        "list_facts": lambda who: who.list_facts(corpus).items[0],
        "search_facts": lambda who: who.search_facts("records", corpus_ids=[corpus]).hits[0],
        "search_facts of everything": lambda who: _first_of(
            hit for hit in who.search_facts("records", limit=100).hits if hit.fact.corpus_id == corpus
        ),
        "get_state": lambda who: who.get_state([corpus]).corpora[0],
        "get_state of everything": lambda who: _first_of(
            state for state in who.get_state().corpora if state.corpus_id == corpus
        ),
        "list_communities": lambda who: who.list_communities(corpus),
        "watch_events": lambda who: _event(rules, who),
        "history of the corpus": lambda who: who.history(corpus_id=corpus).items[0],
        **{
            f"history of a {level.name}": lambda who, node=node: who.history(node_id=node)
            for level, node in nodes.items()
        },
        **{f"get_node {level.name}": lambda who, node=node: who.get_node(node) for level, node in nodes.items()},
    }


def _event(rules: Regulations, who: Client) -> object:
    """The first event of the corpus among all events so far; raises LookupError if there is none."""
    method, request = BY_NAME["WatchEvents"], events_pb2.WatchEventsRequest(from_beginning=True)
    answer = exchange(rules.server, str(who._token), method, [request])
    assert answer.content is not None
    events = events_pb2.WatchEventsResponse.FromString(answer.content).events
    return _first_of(event for event in events if event.corpus_id == str(rules.corpus.id))


def _first_of(found: Iterator[Any]) -> object:
    first = next(found, None)
    if first is None:
        raise LookupError
    return first


def found(rules: Regulations, who: Client) -> set[str]:
    """The names of the reads that succeed."""
    return {name for name, read in reads(rules).items() if _succeeds(who, read)}


def _succeeds(who: Client, read: Callable[[Client], object]) -> bool:
    try:
        return read(who) is not None
    except LookupError:
        return False
    except NotFound as error:
        return error.reason not in {Reason.CORPUS_NOT_FOUND, Reason.NODE_NOT_FOUND, Reason.FACT_NOT_FOUND}


def test_a_corpus_that_is_not_shared_is_not_found(made: Regulations) -> None:
    assert found(made, made.acme) == set()
    assert found(made, made.globex) == set(reads(made))


@pytest.mark.parametrize("how", [{"share_with": [ACME_ID]}, {"share_with_everyone": True}], ids=["named", "everyone"])
def test_a_shared_corpus_is_read_in_every_way(made: Regulations, how: dict[str, Any]) -> None:
    made.share(**how)
    assert found(made, made.acme) == set(reads(made))
    assert found(made, made.globex) == set(reads(made))


def test_the_end_of_sharing_counts_from_the_next_call(made: Regulations) -> None:
    made.share(share_with=[ACME_ID])
    made.acme.get_corpus(made.corpus.id)
    made.share(stop_sharing=True)
    assert found(made, made.acme) == set()
    other_tenant = made.operator.create_tenant(f"other {uuid4()}")
    made.share(share_with=[ACME_ID])
    made.share(share_with=[other_tenant.id])
    assert found(made, made.acme) == set()
    made.share(stop_sharing=True)


def test_a_reader_does_not_learn_which_tenant_owns_a_corpus(rules: Regulations) -> None:
    seen = rules.acme.get_corpus(rules.corpus.id)
    assert (seen.shared, seen.tenant_id, seen.created_by, seen.sharing) == (True, None, "", None)
    assert (seen.name, seen.metadata) == ("regulations", {"kind": "law"})
    assert str(GLOBEX_ID) not in repr(seen)
    (listed,) = [corpus for corpus in rules.acme.iter_corpora() if corpus.id == seen.id]
    assert listed == seen


def test_the_owning_tenant_and_operators_see_with_whom_a_corpus_is_shared(made: Regulations) -> None:
    shared = made.share(share_with=[ACME_ID])
    for seen in (made.globex.get_corpus(shared.id), made.operator.get_corpus(shared.id, tenant_id=GLOBEX_ID)):
        assert seen == shared
        assert (seen.shared, seen.tenant_id) == (False, GLOBEX_ID)
        assert seen.sharing is not None
        assert (seen.sharing.everyone, seen.sharing.tenant_ids, seen.sharing.by) == (False, (ACME_ID,), "root")
    assert made.share(share_with_everyone=True).sharing == replace(
        made.globex.get_corpus(shared.id).sharing, everyone=True, tenant_ids=()
    )
    assert made.share(stop_sharing=True).sharing is None


def test_only_an_operator_of_the_server_shares(made: Regulations) -> None:
    tenant_operator = make_person(made.server, Grant(Role.OPERATOR), tenant=GLOBEX_ID).token
    for who in (made.globex, made.server.client(tenant_operator)):
        for how in ({"share_with": [ACME_ID]}, {"share_with_everyone": True}, {"stop_sharing": True}):
            with refused(Reason.PERMISSION_DENIED):
                who.update_corpus(made.corpus.id, **how)
    with refused(Reason.CORPUS_NOT_FOUND):
        made.acme.update_corpus(made.corpus.id, share_with=[ACME_ID])
    assert found(made, made.acme) == set()


def test_sharing_with_no_tenant_the_owner_or_an_unknown_tenant_is_refused(made: Regulations) -> None:
    with refused(Reason.TENANT_NOT_FOUND):
        made.share(share_with=[uuid4()])
    with refused(Reason.INVALID_ARGUMENT):
        made.share(share_with=[GLOBEX_ID, ACME_ID])
    with refused(Reason.INVALID_ID):
        made.share(share_with=["acme"])
    assert made.globex.get_corpus(made.corpus.id).sharing is None


def test_a_reader_of_a_shared_corpus_cannot_change_it(rules: Regulations) -> None:
    corpus, acme = rules.corpus.id, rules.acme
    before = rules.globex.get_corpus(corpus), rules.globex.history(corpus_id=corpus), rules.globex.get_state([corpus])
    for attempt in (
        lambda: acme.update_corpus(corpus, name="mine"),
        lambda: acme.delete_corpus(corpus),
        lambda: acme.trim_corpus(corpus),
        lambda: acme.add_documents(corpus, [NewDocument("a.txt", b"One sentence that is new.")]),
        lambda: acme.update_document(corpus, b"Another sentence.", document_id=rules.document),
        lambda: acme.remove_documents(corpus, [rules.document]),
        lambda: acme.put_facts(corpus, [NewFact("A new fact, long enough to be taken for one by the store.", "us")]),
        lambda: acme.put_facts(
            corpus,
            [NewFact("A fact for a session, long enough to be taken for one by the store.", "us")],
            cache_control="no-store",
            session_id="s-1",
        ),
        lambda: acme.update_fact(rules.fact, source_location="page 1"),
        lambda: acme.set_fact_status([rules.fact], FactStatus.STALE),
        lambda: acme.archive_facts([rules.fact]),
        lambda: acme.restore_facts([rules.fact]),
        lambda: acme.recompute_communities(corpus),
    ):
        with refused(Reason.PERMISSION_DENIED):
            attempt()
    after = rules.globex.get_corpus(corpus), rules.globex.history(corpus_id=corpus), rules.globex.get_state([corpus])
    assert after == before


def test_a_caller_who_may_not_read_does_not_find_a_shared_corpus(rules: Regulations) -> None:
    """An operator of the tenant reads no corpora, so they do not find this corpus either."""
    with refused(Reason.CORPUS_NOT_FOUND):
        administrator(rules.server).update_corpus(rules.corpus.id, name="mine")
    with refused(Reason.CORPUS_NOT_FOUND):
        administrator(rules.server).get_corpus(rules.corpus.id)


def test_a_shared_corpus_is_neither_exported_nor_signed_by_its_readers(rules: Regulations) -> None:
    person = make_person(rules.server, Grant(Role.AUDITOR), Grant(Role.REVIEWER))
    client = rules.server.client(person.token)
    with refused(Reason.PERMISSION_DENIED):
        client.export_corpus(rules.corpus.id, io.BytesIO())
    answer = exchange(
        rules.server, person.token, BY_NAME["ExportCore"], [cores_pb2.ExportCoreRequest(corpus_id=str(rules.corpus.id))]
    )
    assert answer.info.reason == Reason.PERMISSION_DENIED.name
    for node in rules.nodes.values():
        target = SignatureTarget(SignatureTargetKind.NODE, node)
        with refused(Reason.PERMISSION_DENIED):
            client.prepare_signature(target, "approved")


@pytest.mark.parametrize("role", READERS, ids=lambda role: role.value)
def test_a_grant_for_other_corpora_does_not_reach_a_shared_one(rules: Regulations, role: Role) -> None:
    other_corpus = rules.acme.create_corpus(f"other {uuid4()}").id
    assert found(rules, rules.reader(Grant(role, corpus_id=other_corpus))) == set()
    assert found(rules, rules.reader(Grant(role, corpus_id=rules.corpus.id))) == set(reads(rules))


def test_a_grant_for_some_levels_holds_for_a_shared_corpus_too(rules: Regulations) -> None:
    client = rules.reader(Grant(Role.READER, levels=(Level.MASTER,)))
    assert client.get_node(rules.nodes[Level.MASTER]).corpus_id == rules.corpus.id
    with refused(Reason.PERMISSION_DENIED):
        client.get_node(rules.nodes[Level.CHUNK])


def test_reads_of_a_shared_corpus_are_recorded_in_the_readers_log(rules: Regulations) -> None:
    rules.acme.get_node(rules.nodes[Level.CHUNK], request_id=(request := str(uuid4())))
    (record,) = [record for record in all_records(rules.server) if record.get("request_id") == request]
    assert record["log"] == str(ACME_ID)
    assert record["corpora"].keys() == {str(rules.corpus.id)}


def test_the_combined_state_has_shared_corpora_and_changes_with_them(rules: Regulations) -> None:
    def mine() -> State:
        return rules.acme.get_state()

    before = mine()
    assert [state.shared for state in before.corpora if state.corpus_id == rules.corpus.id] == [True]
    rules.globex.put_facts(rules.corpus.id, [NewFact("The rules have changed, and this is what they say now.", "new")])
    changed = mine()
    assert changed.combined_hash != before.combined_hash
    rules.share(stop_sharing=True)
    assert mine().combined_hash not in {before.combined_hash, changed.combined_hash}
    assert mine() == mine()


def test_reads_of_shared_facts_are_counted(rules: Regulations) -> None:
    (before,) = rules.globex.list_facts(rules.corpus.id, page_size=1).items
    rules.acme.get_facts([before.id])
    (after,) = rules.globex.list_facts(rules.corpus.id, page_size=1).items
    assert after.access_count == before.access_count + 1


def test_a_tenants_own_corpus_takes_precedence_over_a_shared_one_of_the_same_id(rules: Regulations) -> None:
    own = rules.acme.create_corpus("own", corpus_id=rules.corpus.id)
    try:
        assert rules.acme.get_corpus(own.id) == own
        assert [corpus for corpus in rules.acme.iter_corpora() if corpus.id == own.id] == [own]
        with refused(Reason.NODE_NOT_FOUND):
            rules.acme.get_node(rules.nodes[Level.CHUNK])
    finally:
        rules.acme.delete_corpus(own.id)


def test_only_one_of_two_corpora_with_the_same_id_can_be_shared_with_a_tenant(rules: Regulations) -> None:
    third = rules.operator.create_tenant(f"third {uuid4()}")
    rules.operator.create_corpus("same", corpus_id=rules.corpus.id, tenant_id=third.id)
    with refused(Reason.CORPUS_EXISTS):
        rules.operator.update_corpus(rules.corpus.id, tenant_id=third.id, share_with=[ACME_ID])
    assert rules.acme.get_corpus(rules.corpus.id).name == "regulations"


def test_a_deleted_corpus_is_not_shared(made: Regulations) -> None:
    corpus = made.globex.create_corpus(f"short-lived {uuid4()}")
    made.operator.update_corpus(corpus.id, tenant_id=GLOBEX_ID, share_with_everyone=True)
    assert made.acme.get_corpus(corpus.id).shared
    made.globex.delete_corpus(corpus.id)
    with refused(Reason.CORPUS_NOT_FOUND):
        made.acme.get_corpus(corpus.id)
    assert corpus.id not in {listed.id for listed in made.acme.iter_corpora()}


def test_pages_of_corpora_have_own_and_shared_corpora_once_each(made: Regulations) -> None:
    shared = {made.globex.create_corpus(f"theirs {uuid4()}").id for _ in range(4)}
    for corpus in shared:
        made.operator.update_corpus(corpus, tenant_id=GLOBEX_ID, share_with_everyone=True)
    own = {made.acme.create_corpus(f"ours {uuid4()}").id for _ in range(3)}
    listed = [entry.id for entry in made.acme.iter_corpora(page_size=2)]
    assert listed == sorted(set(listed))
    assert own | shared <= set(listed)
    for corpus in shared:
        made.globex.delete_corpus(corpus)


def test_signatures_of_a_tenants_own_nodes_do_not_appear_on_shared_nodes_of_the_same_id(made: Regulations) -> None:
    """Tenants choose node ids themselves. Here acme signed a node with the id of a node that globex shares."""
    hierarchy, corpora = two_sections(), {}
    for client, token in ((made.acme, ACME), (made.globex, GLOBEX)):
        corpora[token] = client.create_corpus(f"put {uuid4()}").id
        caller = Caller(made.server.address, token)
        put(caller, str(corpora[token]), hierarchy)
        caller.close()
    signatory = person(made.server, f"signatory-{uuid4()}", Role.REVIEWER)
    signing = signatory.log_in()
    target = SignatureTarget(SignatureTargetKind.NODE, UUID(hierarchy.master.id))
    signing.sign_record(
        signing.prepare_signature(target, "approved"), signatory.password, login=signatory.account.login
    )
    assert len(made.acme.get_node(hierarchy.master.id).signatures) == 1
    made.acme.delete_corpus(corpora[ACME])
    made.operator.update_corpus(corpora[GLOBEX], tenant_id=GLOBEX_ID, share_with=[ACME_ID])
    seen = made.acme.get_node(hierarchy.master.id)
    assert (seen.corpus_id, seen.signatures) == (corpora[GLOBEX], ())
    (hit,) = made.acme.query(level=Level.MASTER, corpus_ids=[corpora[GLOBEX]]).items
    assert hit.node.signatures == ()
    made.globex.delete_corpus(corpora[GLOBEX])


def test_fsck_finds_index_entries_of_sharing_that_disagree_with_the_corpora(rules: Regulations) -> None:
    server = rules.server
    keys, (_, header) = server.server._unit.keys, open_store(server.engine)
    check = Fsck(server.engine, keys, server.server.keyring, header.store_id)
    assert check.run().problems == ()
    stray = keys.shared_corpus(ACME_ID, uuid4())  # type: ignore[arg-type]  # any id
    lost = keys.shared_corpus(ACME_ID, rules.corpus.id)  # type: ignore[arg-type]
    kept = server.engine.run(lambda tr: tr.get(lost))
    assert kept is not None
    server.engine.run(lambda tr: (tr.set(stray, GLOBEX_ID.bytes), tr.clear(lost)))
    problems = check.run().problems
    server.engine.run(lambda tr: (tr.clear(stray), tr.set(lost, kept)))
    assert [problem for problem in problems if "shared" in problem] == list(problems)
    assert len(problems) == 2
