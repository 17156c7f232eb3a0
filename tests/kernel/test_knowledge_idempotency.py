"""A request id names a change of documents too. Repeated, the change is made once and gets the first answer."""

from __future__ import annotations

from drillcore_proto.reasons import Reason
from tests.support.callers.knowledge import ADDED, FAILED, UNCHANGED, UPDATED, Caller, File, files, parts, refused
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import new_corpus
from tests.support.servers.concurrently import concurrently
from tests.support.servers.running import Running
from tests.support.servers.trees import walk

FIRST = [File("a.txt", notice(1)), File("broken.txt", b""), File("b.txt", notice(2))]


def test_repeated_additions_are_made_once_and_get_the_same_answer(library: Caller, corpus: str) -> None:
    first = library.add(corpus, *FIRST, request_id=f"add {corpus}")
    again = library.add(corpus, *FIRST, request_id=f"add {corpus}")
    assert sorted(first.kinds) == [ADDED, ADDED, FAILED]
    assert again.done == first.done
    assert again.by_name == first.by_name
    assert [entry.revision for entry in library.history(corpus_id=corpus)] == [1]


def test_repeated_additions_in_other_pieces_are_the_same_request(library: Caller, corpus: str) -> None:
    """Clients may split a file into messages in any way."""
    first = library.send(parts(corpus, FIRST, part_bytes=50), f"add {corpus}")
    again = library.send(parts(corpus, FIRST, part_bytes=1_000), f"add {corpus}")
    assert (again.done, again.by_name) == (first.done, first.by_name)


def test_a_repeated_update_is_made_once(library: Caller, corpus: str) -> None:
    library.add(corpus, File("a.txt", notice(1)))
    sent = [File("a.txt", notice(2)), File("b.txt", notice(3))]
    first = library.add(corpus, *sent, request_id=f"update {corpus}")
    again = library.add(corpus, *sent, request_id=f"update {corpus}")
    assert first.by_name["a.txt"].kind == UPDATED
    assert (again.done, again.by_name) == (first.done, first.by_name)
    assert library.head(corpus) == 2


def test_repeated_additions_do_not_undo_later_removals_and_changes(library: Caller, corpus: str) -> None:
    first = library.add(corpus, *FIRST, request_id=f"add {corpus}")
    library.remove(corpus, first.ids["a.txt"])
    library.add(corpus, File("b.txt", notice(5)))
    before = walk(library, corpus)
    again = library.add(corpus, *FIRST, request_id=f"add {corpus}")
    assert (again.done, again.by_name) == (first.done, first.by_name)
    assert walk(library, corpus) == before


def test_other_additions_under_the_same_id_are_refused(library: Caller, corpus: str, shared: Running) -> None:
    library.add(corpus, *FIRST, request_id=f"add {corpus}")
    changed = [File("a.txt", notice(9)), *FIRST[1:]]
    for sent in (changed, FIRST[:1], FIRST[::-1], [*FIRST, File("c.txt", notice(3))], []):
        with refused(Reason.REQUEST_ID_REUSED):
            library.add(corpus, *sent, request_id=f"add {corpus}")
    with refused(Reason.REQUEST_ID_REUSED):
        library.add(new_corpus(shared), *FIRST, request_id=f"add {corpus}")
    with refused(Reason.REQUEST_ID_REUSED):
        library.add(
            corpus, *(File(file.name, file.content, metadata={"k": "v"}) for file in FIRST), request_id=f"add {corpus}"
        )
    assert library.head(corpus) == 1


def test_a_repeated_removal_is_no_error(library: Caller, corpus: str) -> None:
    ids = library.add_texts(corpus, {"a.txt": notice(1), "b.txt": notice(2)})
    first = library.remove(corpus, ids["a.txt"], request_id=f"remove {corpus}")
    assert library.remove(corpus, ids["a.txt"], request_id=f"remove {corpus}") == first
    assert library.head(corpus) == 2
    with refused(Reason.REQUEST_ID_REUSED):
        library.remove(corpus, ids["b.txt"], request_id=f"remove {corpus}")
    with refused(Reason.REQUEST_ID_REUSED):
        library.add(corpus, *FIRST, request_id=f"remove {corpus}")


def test_the_same_request_several_times_at_once_is_one_revision(library: Caller, corpus: str) -> None:
    answers = concurrently(4, lambda _: library.add(corpus, *files(REGULATIONS), request_id=f"add {corpus}"))
    assert [answer.done for answer in answers] == [answers[0].done] * 4
    assert [answer.by_name for answer in answers] == [answers[0].by_name] * 4
    assert library.head(corpus) == 1
    assert len(library.list_documents(corpus)) == len(REGULATIONS)


def test_additions_that_change_nothing_may_be_made_again(library: Caller, corpus: str) -> None:
    library.add(corpus, *FIRST)
    for _ in range(2):
        again = library.add(corpus, FIRST[0], request_id=f"again {corpus}")
        assert (again.kinds, again.done.revision) == ([UNCHANGED], 1)
