"""The call that watches what changes. See `_calls`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from drillcore import _convert_events as convert
from drillcore._call import Call, Id, id_text
from drillcore._event_results import Event, EventKind
from drillcore._follow import Batch, Follow
from drillcore_proto.v1 import events_pb2 as pb

_PATH: Final = "/drillcore_proto.v1.EventService/WatchEvents"


def watch_events(
    corpus_ids: Collection[Id] = (),
    *,
    kinds: Collection[EventKind] = (),
    resume_token: str = "",
    from_beginning: bool = False,
    on_token: Callable[[str], object] | None = None,
    tenant_id: Id | None = None,
) -> Follow[Event]:
    """Events as they happen, in the order of their commits, without end; by default of all that the caller may read.

    From now on, or after the event that had this `resume_token`, or `from_beginning` all that there is. A lost
    connection is made again, and no event is left out or comes twice; only if no server answers for as long as other
    calls wait, Unavailable is raised. To go on later, also in another process, keep the token of the last event.

    `on_token` hears tokens that come without events too: the first says that the watch has begun, each further one that
    all events before it were seen. Leave the iteration, or close the iterator, to stop watching.
    """
    if resume_token and from_beginning:
        raise TypeError("give either resume_token or from_beginning")

    def begin(token: str) -> Call[Batch[Event]]:
        request = pb.WatchEventsRequest(
            tenant_id=id_text(tenant_id),
            corpus_ids=map(id_text, corpus_ids),
            kinds=map(convert.kind_message, kinds),
            resume_token=token or resume_token,
            from_beginning=from_beginning and not token,
        )
        return Call(_PATH, request, _decode, None, None)

    return Follow(begin, on_token)


def _decode(answer: bytes) -> Batch[Event]:
    response = pb.WatchEventsResponse.FromString(answer)
    return Batch(convert.events(response), response.resume_token)
