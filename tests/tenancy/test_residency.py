"""A corpus is in a region. A server, a tenant and a call each allow some regions and refuse corpora outside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from drillcore import Client, Corpus, Level, NewDocument, PermissionDenied
from drillcore_proto.reasons import RESIDENCY_HEADER, Reason
from drillcore_server.kernel.access import Residency
from drillcore_server.tenancy.trim import trim_corpora
from tests.support.servers.people import refused
from tests.support.servers.rpcs import call
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, Running, create_tenants, running
from tests.support.stores.trails import all_records

TEXT = b"Records of each batch shall be kept for ten years.\n\nThey shall be legible."


@dataclass(frozen=True)
class Places:
    """Corpora of acme in two regions and in no region, each with a document."""

    server: Running
    eu: Corpus
    us: Corpus
    nowhere: Corpus

    @property
    def all(self) -> list[Corpus]:
        return [self.eu, self.us, self.nowhere]

    def bound_to(self, region: str) -> Client:
        return self.server.client(ACME, residency=region)

    def allow(self, *regions: str) -> None:
        self.server.client().update_tenant(ACME_ID, allowed_regions=regions)

    def node_of(self, corpus: Corpus) -> UUID:
        """A node of the corpus. Its owner asks without a bound, so this works only while regions are unrestricted."""
        return self.server.client(ACME).query(level=Level.MASTER, corpus_ids=[corpus.id]).items[0].node.id


def fill(client: Client, **corpora: str) -> Iterator[Corpus]:
    for name, region in corpora.items():
        corpus = client.create_corpus(name, region=region)
        client.add_documents(corpus.id, [NewDocument("a.txt", TEXT)])
        yield corpus


@pytest.fixture
def places(server: Running) -> Places:
    create_tenants(server.client())
    return Places(server, *fill(server.client(ACME), eu="eu-west-1", us="us-east-1", nowhere=""))


def uses(client: Client, corpus: UUID) -> dict[str, Callable[[], object]]:
    """Reads and writes that name a corpus."""
    return {
        "get_corpus": lambda: client.get_corpus(corpus),
        "list_documents": lambda: client.list_documents(corpus),
        "query": lambda: client.query(corpus_ids=[corpus]),
        "history": lambda: client.history(corpus),
        "update_corpus": lambda: client.update_corpus(corpus, description="new"),
        "add_documents": lambda: client.add_documents(corpus, [NewDocument(f"{uuid4()}.txt", TEXT)]),
        "trim_corpus": lambda: client.trim_corpus(corpus),
        "delete_corpus": lambda: client.delete_corpus(corpus),
    }


def check_refused(client: Client, corpus: UUID) -> None:
    for name, use in uses(client, corpus).items():
        with pytest.raises(PermissionDenied) as caught:
            use()
        assert caught.value.reason is Reason.REGION_NOT_ALLOWED, name


def check_served(client: Client, corpus: UUID) -> None:
    for use in uses(client, corpus).values():
        use()


def test_a_call_that_is_bound_to_a_region_touches_only_corpora_in_it(places: Places) -> None:
    client, nodes = places.bound_to("eu-west-1"), {corpus.id: places.node_of(corpus) for corpus in places.all}
    for corpus in (places.us, places.nowhere):
        check_refused(client, corpus.id)
        with refused(Reason.REGION_NOT_ALLOWED):
            client.get_node(nodes[corpus.id])
    assert client.get_node(nodes[places.eu.id]).corpus_id == places.eu.id
    assert [listed.id for listed in client.iter_corpora()] == [places.eu.id]
    assert client.query(level=Level.CHUNK).revisions.keys() == {places.eu.id}
    check_served(client, places.eu.id)


def test_a_region_that_a_tenant_does_not_allow_is_refused_to_all_its_callers(places: Places) -> None:
    places.allow("us-east-1", "eu-north-1")
    for client in (places.server.client(ACME), places.server.client(tenant_id=ACME_ID)):
        for corpus in (places.eu, places.nowhere):
            check_refused(client, corpus.id)
        assert [listed.id for listed in client.iter_corpora()] == [places.us.id]
        assert client.query(level=Level.CHUNK).revisions.keys() == {places.us.id}
    check_served(places.server.client(ACME), places.us.id)


def test_allowed_regions_are_set_and_lifted_by_operators(places: Places) -> None:
    operator = places.server.client()
    assert operator.update_tenant(ACME_ID, allowed_regions=["us-east-1", "eu-west-1"]).allowed_regions == (
        "eu-west-1",
        "us-east-1",
    )
    assert operator.update_tenant(ACME_ID, name="acme ltd").allowed_regions == ("eu-west-1", "us-east-1")
    assert operator.update_tenant(ACME_ID, allowed_regions=[]).allowed_regions == ()
    assert len(list(places.server.client(ACME).iter_corpora())) == 3
    made = operator.create_tenant("bound", allowed_regions=["eu-west-1"])
    assert operator.get_tenant(made.id).allowed_regions == ("eu-west-1",)
    with refused(Reason.PERMISSION_DENIED):
        places.server.client(ACME).update_tenant(ACME_ID, allowed_regions=[])


def test_a_new_corpus_must_be_in_an_allowed_region(places: Places) -> None:
    places.allow("eu-west-1")
    client = places.server.client(ACME)
    for region in ("", "us-east-1"):
        with refused(Reason.REGION_NOT_ALLOWED):
            client.create_corpus(f"corpus {uuid4()}", region=region)
    assert client.create_corpus("there", region="eu-west-1").region == "eu-west-1"
    with refused(Reason.REGION_NOT_ALLOWED):
        places.bound_to("us-east-1").create_corpus("elsewhere", region="eu-west-1")


def test_a_corpus_made_by_a_bound_call_is_in_the_region_of_the_call(places: Places) -> None:
    assert places.bound_to("eu-west-1").create_corpus("bound").region == "eu-west-1"


def test_the_region_of_a_corpus_is_set_only_once(places: Places) -> None:
    client = places.server.client(ACME)
    assert client.update_corpus(places.nowhere.id, region="eu-west-1").region == "eu-west-1"
    assert client.update_corpus(places.nowhere.id, region="eu-west-1", name="same").region == "eu-west-1"
    with refused(Reason.REGION_FIXED):
        client.update_corpus(places.nowhere.id, region="us-east-1")
    assert client.get_corpus(places.nowhere.id).region == "eu-west-1"


def test_a_corpus_without_a_region_can_enter_an_allowed_region_only(places: Places) -> None:
    places.allow("eu-west-1")
    client = places.server.client(ACME)
    with refused(Reason.REGION_NOT_ALLOWED):
        client.update_corpus(places.nowhere.id, region="us-east-1")
    client.update_corpus(places.nowhere.id, region="eu-west-1")
    assert client.list_documents(places.nowhere.id).items
    with refused(Reason.REGION_NOT_ALLOWED):
        client.update_corpus(places.us.id, region="eu-west-1")


def test_an_unknown_corpus_is_not_found_whatever_the_region(places: Places) -> None:
    """Otherwise a refusal would reveal that another tenant has the corpus."""
    (theirs,) = fill(places.server.client(GLOBEX), theirs="us-east-1")
    places.allow("eu-west-1")
    for client in (places.server.client(ACME), places.bound_to("eu-west-1")):
        for use in uses(client, theirs.id).values():
            with refused(Reason.CORPUS_NOT_FOUND):
                use()


def test_a_shared_corpus_is_read_only_where_the_reader_allows(places: Places) -> None:
    shared = list(fill(places.server.client(GLOBEX), here="eu-west-1", there="us-east-1"))
    operator = places.server.client()
    for corpus in shared:
        operator.update_corpus(corpus.id, tenant_id=GLOBEX_ID, share_with=[ACME_ID])
    places.allow("eu-west-1")
    client = places.server.client(ACME)
    assert client.list_documents(shared[0].id).items
    with refused(Reason.REGION_NOT_ALLOWED):
        client.list_documents(shared[1].id)
    assert {listed.id for listed in client.iter_corpora()} == {places.eu.id, shared[0].id}


def test_a_server_serves_and_trims_only_its_own_regions(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        create_tenants(server.client())
        client = server.client(ACME)
        eu, us, nowhere = fill(client, eu="eu-west-1", us="us-east-1", nowhere="")
        for corpus in (eu, us, nowhere):
            client.update_corpus(corpus.id, retention_days=1)
            client.add_documents(corpus.id, [NewDocument("b.txt", b"Nothing else is recorded here.")])
    with running(tmp_path, regions=("eu-west-1", "eu-north-1")) as server:
        client = server.client(ACME)
        for corpus in (us, nowhere):
            check_refused(client, corpus.id)
        assert [listed.id for listed in client.iter_corpora()] == [eu.id]
        with refused(Reason.REGION_NOT_ALLOWED):
            client.create_corpus("new")
        later, keys = datetime.now(UTC) + timedelta(days=3), server.server._unit.keys
        trimmed = trim_corpora(server.engine, keys, later, lambda: False, Residency(("eu-west-1",)))
        assert [corpus.id for corpus, _ in trimmed] == [eu.id]
        check_served(client, eu.id)


@pytest.mark.parametrize("wrong", ["", "EU", "eu west", "eu,us", "-eu", "e" * 64, "eu_1"])
def test_a_malformed_region_is_refused(shared: Running, wrong: str) -> None:
    path = "/drillcore_proto.v1.CorpusService/ListCorpora"
    info = call(shared.address, path, b"", token=ACME, drillcore_data_residency=wrong).info
    assert (info.reason, info.metadata["field"]) == (Reason.INVALID_ARGUMENT.name, RESIDENCY_HEADER)
    if wrong:
        with refused(Reason.INVALID_ARGUMENT):
            shared.client(ACME).create_corpus(f"corpus {uuid4()}", region=wrong)
        with refused(Reason.INVALID_ARGUMENT):
            shared.client().create_tenant(f"tenant {uuid4()}", allowed_regions=["eu", wrong])


def test_the_record_of_a_call_names_the_region_it_was_bound_to(places: Places) -> None:
    places.bound_to("eu-west-1").list_documents(places.eu.id, request_id=(request := str(uuid4())))
    (record,) = [record for record in all_records(places.server) if record.get("request_id") == request]
    assert record["detail"]["region"] == "eu-west-1"


def test_a_request_that_is_repeated_in_another_region_is_another_request(places: Places) -> None:
    places.bound_to("eu-west-1").update_corpus(places.eu.id, description="new", request_id="one")
    assert places.bound_to("eu-west-1").update_corpus(places.eu.id, description="new", request_id="one").version == 2
    with refused(Reason.REQUEST_ID_REUSED):
        places.bound_to("us-east-1").update_corpus(places.eu.id, description="new", request_id="one")
