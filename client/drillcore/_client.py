"""The two clients. Both bind the calls of `_api` as methods, and differ only in how they carry a call out."""

from __future__ import annotations

import asyncio
import functools
import inspect
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast, overload

import grpc
import grpc.aio
from google.protobuf.message import Message

from drillcore._api import (
    accounts,
    audit,
    communities,
    cores,
    corpora,
    documents,
    embeddings,
    envelopes,
    events,
    exports,
    facts,
    graphs,
    hierarchy,
    nodes,
    provenance,
    quads,
    server,
    signatures,
    sources,
    tenants,
)
from drillcore._transport import channel
from drillcore._transport.call import Call, Page, Pages, all_pages
from drillcore._transport.client_settings import DEFAULT_ADDRESS, TLS, ClientSettings, load_client_settings
from drillcore._transport.follow import Follow, Follower
from drillcore._transport.resume import Resumable, Resumer
from drillcore._transport.upload import Bridge, Exchange, Upload
from drillcore.errors import DrillcoreError, from_rpc_error

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_ABOUT_SERVER = ("server_account", "server_accounts", "server_log")
"""Fields that make a request concern the server itself and no tenant."""


class _Method(Protocol[P, T_co]):
    """A method that returns T on a Client, and is awaited for T on an AsyncClient."""

    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, T_co]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type[AsyncClient]) -> Callable[P, Coroutine[Any, Any, T_co]]: ...


class _Iteration(Protocol[P, T_co]):
    """A method that iterates over T, synchronously on a Client and asynchronously on an AsyncClient."""

    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, Iterator[T_co]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type[AsyncClient]) -> Callable[P, AsyncIterator[T_co]]: ...


def _rpc(build: Callable[P, Call[T]]) -> _Method[P, T]:
    """The method that builds a call and carries it out."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._carry_out(build(*args, **kwargs))

    return cast(_Method[P, T], _dressed(method, build))


def _paged(build: Callable[P, Call[Page[T]]], name: str) -> _Iteration[P, T]:
    """The method, called `name`, that iterates over the items of all pages of a list."""

    def pages(*args: P.args, **kwargs: P.kwargs) -> Pages[T]:
        return all_pages(build, *args, **kwargs)

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._iterate(pages(*args, **kwargs))

    signature = inspect.signature(build)
    returns = str(signature.return_annotation).replace("Call", "Pages", 1)
    pages.__name__, pages.__doc__ = name, _PAGES.format(list=build.__name__)
    pages.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]  # as in _dressed
    return cast(_Iteration[P, T], _dressed(method, pages))


_PAGES = """Every item that `{list}` lists, fetched page by page. Takes the same arguments.

Items of one corpus are all read at the same revision. `page_token` names the first page. `timeout_s` is for each page.
With a `request_id`, each page has a request id that consists of it and the number of the page.
"""


def _series(build: Callable[P, Iterable[Call[T]]]) -> _Iteration[P, T]:
    """The method that makes one call after the other, and iterates over their results."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._carry_out_each(build(*args, **kwargs))

    return cast(_Iteration[P, T], _dressed(method, build))


def _followed(build: Callable[P, Follow[T]]) -> _Iteration[P, T]:
    """The method that iterates over the items of a stream until it ends."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._follow(build(*args, **kwargs))

    return cast(_Iteration[P, T], _dressed(method, build))


def _upload(build: Callable[P, Upload[T]]) -> _Method[P, T]:
    """The method that builds an upload and carries it out."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._send(build(*args, **kwargs))

    return cast(_Method[P, T], _dressed(method, build))


def _resumed(build: Callable[P, Resumable[T]]) -> _Method[P, T]:
    """The method that transfers a file in as many calls as it takes."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._carry(build(*args, **kwargs))

    return cast(_Method[P, T], _dressed(method, build))


def _dressed(method: Callable[..., object], build: Callable[..., object]) -> object:
    """The method, with the name, documentation and arguments of the function that builds its call."""
    signature = inspect.signature(build)
    myself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    functools.update_wrapper(method, build)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]  # inspect and help() read it
        parameters=[myself, *signature.parameters.values()], return_annotation=inspect.Signature.empty
    )
    return method


class _Api:
    """What both clients share: the settings and the calls."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        token: str | None = None,
        tenant_id: uuid.UUID | str | None = None,
        tls: TLS | None = None,
        timeout_s: float = 30.0,
        attempts: int = 5,
        allow_insecure: bool = False,
        reason: str | None = None,
        residency: str | None = None,
    ) -> None:
        """The client connects with its first call. `ClientSettings` explains the arguments.

        Raises SettingsError if the token would travel unencrypted to another machine without `allow_insecure`.
        """
        self._start(
            ClientSettings(
                address=address,
                token=token,
                tenant_id=str(tenant_id) if tenant_id else None,
                tls=tls,
                timeout_s=timeout_s,
                attempts=attempts,
                allow_insecure=allow_insecure,
                reason=reason,
                residency=residency,
            )
        )

    @classmethod
    def from_settings(cls, settings: ClientSettings | None = None) -> Self:
        """A client with these settings, else with those of the settings file and the environment.

        Raises SettingsError.
        """
        client = cls.__new__(cls)
        client._start(settings or load_client_settings().settings)
        return client

    def _start(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._token = settings.bearer_token()
        self._credentials = channel.credentials(settings)
        # Both clients use a blocking channel: grpc.aio loses the reason if a server ends an upload (grpc/grpc#36066).
        self._upload_channel = channel.open_upload_channel(settings, self._credentials)
        self._closed = False
        self._methods: dict[str, Any] = {}

    def _method(self, channel: grpc.Channel | grpc.aio.Channel, path: str, *, streams: bool = False) -> Any:
        """The gRPC method for a path. It takes a request and returns the bytes of the answer, or of many answers."""
        if self._closed:
            raise RuntimeError("this client is closed")
        if path not in self._methods:
            kind = channel.stream_stream if streams else channel.unary_unary
            self._methods[path] = kind(path, request_serializer=_serialize)
        return self._methods[path]

    def _prepare(self, call: Call[T] | Upload[T], timeout_s: float | None) -> tuple[str, dict[str, Any]]:
        """The request id and the keyword arguments for gRPC. Sets the default tenant in the request."""
        request = call.request
        about_server = any(getattr(request, name, False) for name in _ABOUT_SERVER)
        if self.settings.tenant_id and not about_server and getattr(request, "tenant_id", None) == "":
            request.tenant_id = self.settings.tenant_id  # type: ignore[attr-defined]  # checked just above
        channel.check_secrets(self.settings, self._credentials, request)
        request_id = str(uuid.uuid4()) if call.request_id is None else channel.check_request_id(call.request_id)
        metadata = channel.metadata(self._token, request_id, self.settings.reason, self.settings.residency)
        return request_id, {"metadata": metadata, "timeout": timeout_s if call.timeout_s is None else call.timeout_s}

    def _exchange(self, upload: Upload[T], exchange: Exchange[T]) -> T:
        """Carries out an upload in the caller's thread."""
        method = self._method(self._upload_channel, upload.path, streams=True)
        request_id, arguments = self._prepare(upload, None)
        try:
            return exchange.run(method, arguments).result(request_id)
        except grpc.RpcError as error:
            raise self._error(error, request_id) from error

    def _open(self, call: Call[T], requests: Callable[[Message], Iterator[Message]]) -> tuple[str, Any]:
        """Begins a stream. Returns the request id and an iterator over the answers."""
        method = self._method(self._upload_channel, call.path, streams=True)
        request_id, arguments = self._prepare(call, None)
        return request_id, method(requests(call.request), **arguments)

    def _error(self, error: grpc.RpcError, request_id: str) -> DrillcoreError:
        return from_rpc_error(error, request_id=request_id, address=self.settings.address)

    server_info = _rpc(server.server_info)
    create_tenant = _rpc(tenants.create_tenant)
    get_tenant = _rpc(tenants.get_tenant)
    list_tenants = _rpc(tenants.list_tenants)
    iter_tenants = _paged(tenants.list_tenants, "iter_tenants")
    update_tenant = _rpc(tenants.update_tenant)
    delete_tenant = _rpc(tenants.delete_tenant)
    create_corpus = _rpc(corpora.create_corpus)
    get_corpus = _rpc(corpora.get_corpus)
    list_corpora = _rpc(corpora.list_corpora)
    iter_corpora = _paged(corpora.list_corpora, "iter_corpora")
    update_corpus = _rpc(corpora.update_corpus)
    delete_corpus = _rpc(corpora.delete_corpus)
    trim_corpus = _rpc(corpora.trim_corpus)
    add_documents = _upload(documents.add_documents)
    update_document = _upload(documents.update_document)
    put_hierarchy = _upload(hierarchy.put_hierarchy)
    remove_documents = _rpc(documents.remove_documents)
    get_document = _rpc(documents.get_document)
    list_documents = _rpc(documents.list_documents)
    iter_documents = _paged(documents.list_documents, "iter_documents")
    get_node = _rpc(nodes.get_node)
    query = _rpc(nodes.query)
    iter_query = _paged(nodes.query, "iter_query")
    drill_down = _rpc(nodes.drill_down)
    iter_drill_down = _paged(nodes.drill_down, "iter_drill_down")
    roll_up = _rpc(nodes.roll_up)
    history = _rpc(nodes.history)
    iter_history = _paged(nodes.history, "iter_history")
    put_facts = _rpc(facts.put_facts)
    put_fact_batches = _series(facts.put_fact_batches)
    get_facts = _rpc(facts.get_facts)
    list_facts = _rpc(facts.list_facts)
    iter_facts = _paged(facts.list_facts, "iter_facts")
    update_fact = _rpc(facts.update_fact)
    set_fact_status = _rpc(facts.set_fact_status)
    archive_facts = _rpc(facts.archive_facts)
    restore_facts = _rpc(facts.restore_facts)
    search_facts = _rpc(facts.search_facts)
    get_state = _rpc(facts.get_state)
    end_session = _rpc(facts.end_session)
    preview_envelope = _rpc(envelopes.preview_envelope)
    pack_envelope = _rpc(envelopes.pack_envelope)
    continue_envelope = _rpc(envelopes.continue_envelope)
    get_envelope = _rpc(envelopes.get_envelope)
    list_communities = _rpc(communities.list_communities)
    iter_communities = _paged(communities.list_communities, "iter_communities")
    get_community = _rpc(communities.get_community)
    iter_community_facts = _paged(communities.get_community, "iter_community_facts")
    recompute_communities = _rpc(communities.recompute_communities)
    get_source = _rpc(sources.get_source)
    list_sources = _rpc(sources.list_sources)
    iter_sources = _paged(sources.list_sources, "iter_sources")
    erase_source = _rpc(sources.erase_source)
    list_erasures = _rpc(sources.list_erasures)
    iter_erasures = _paged(sources.list_erasures, "iter_erasures")
    purge_erased = _rpc(sources.purge_erased)
    watch_events = _followed(events.watch_events)
    migrate_embeddings = _followed(embeddings.migrate_embeddings)
    get_migration = _rpc(embeddings.get_migration)
    query_audit = _rpc(audit.query_audit)
    iter_audit = _paged(audit.query_audit, "iter_audit")
    wait_proof = _rpc(audit.wait_proof)
    get_checkpoint = _rpc(audit.get_checkpoint)
    consistency_proof = _rpc(audit.consistency_proof)
    verify_audit = _rpc(audit.verify_audit)
    export_audit = _upload(audit.export_audit)
    export_corpus = _upload(exports.export_corpus)
    review_audit = _rpc(audit.review_audit)
    list_reviews = _rpc(audit.list_reviews)
    iter_reviews = _paged(audit.list_reviews, "iter_reviews")
    rotate_audit_key = _rpc(audit.rotate_audit_key)
    prepare_signature = _rpc(signatures.prepare_signature)
    sign_record = _rpc(signatures.sign_record)
    list_signatures = _rpc(signatures.list_signatures)
    iter_signatures = _paged(signatures.list_signatures, "iter_signatures")
    put_quads = _rpc(quads.put_quads)
    remove_quads = _rpc(quads.remove_quads)
    match_quads = _rpc(quads.match_quads)
    iter_quads = _paged(quads.match_quads, "iter_quads")
    import_quads = _upload(quads.import_quads)
    export_quads = _upload(quads.export_quads)
    explain = _rpc(provenance.explain)
    export_core = _resumed(cores.export_core)
    import_core = _resumed(cores.import_core)
    put_turns = _rpc(graphs.put_turns)
    put_edges = _rpc(graphs.put_edges)
    remove_turns = _rpc(graphs.remove_turns)
    list_turns = _rpc(graphs.list_turns)
    iter_turns = _paged(graphs.list_turns, "iter_turns")
    slice = _rpc(graphs.slice)
    login = _rpc(accounts.login)
    logout = _rpc(accounts.logout)
    create_account = _rpc(accounts.create_account)
    get_account = _rpc(accounts.get_account)
    list_accounts = _rpc(accounts.list_accounts)
    iter_accounts = _paged(accounts.list_accounts, "iter_accounts")
    update_account = _rpc(accounts.update_account)
    set_grants = _rpc(accounts.set_grants)
    set_password = _rpc(accounts.set_password)
    create_token = _rpc(accounts.create_token)
    list_tokens = _rpc(accounts.list_tokens)
    revoke_token = _rpc(accounts.revoke_token)


class Client(_Api):
    """Calls a Drillcore server and waits for the answer. Threads may share a client.

    Failed calls raise a DrillcoreError. If the server does not answer, the client repeats the call under the same
    request id.
    """

    def _start(self, settings: ClientSettings) -> None:
        super()._start(settings)
        self._channel = channel.open_channel(settings, self._credentials)

    def close(self) -> None:
        """Close the connection. Running calls fail with Cancelled."""
        self._closed = True
        self._upload_channel.close()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _carry_out(self, call: Call[T]) -> T:
        method = self._method(self._channel, call.path)
        request_id, arguments = self._prepare(call, self.settings.timeout_s)
        try:
            answer: bytes = method(call.request, **arguments)
        except grpc.RpcError as error:
            raise self._error(error, request_id) from error
        return call.decode(answer)

    def _send(self, upload: Upload[T]) -> T:
        if isinstance(upload.items, AsyncIterable):
            raise TypeError("a Client cannot read an async iterable: use an AsyncClient")
        return self._exchange(upload, Exchange(upload, upload.items, upload.on_event))

    def _carry(self, resumable: Resumable[T]) -> T:
        return Resumer(resumable, self, resumable.on_event).run()

    def _iterate(self, pages: Pages[T]) -> Iterator[T]:
        page = self._carry_out(pages(""))
        yield from page.items
        while page.next_page_token:
            page = self._carry_out(pages(page.next_page_token))
            yield from page.items

    def _carry_out_each(self, calls: Iterable[Call[T]]) -> Iterator[T]:
        for call in calls:
            yield self._carry_out(call)

    def _follow(self, follow: Follow[T]) -> Iterator[T]:
        for batch in Follower(follow, self).batches():
            yield from batch.items
            follow.done_with(batch)


class AsyncClient(_Api):
    """Calls a Drillcore server from asyncio. The client belongs to the event loop of its first call.

    Failed calls raise a DrillcoreError. If the server does not answer, the client repeats the call under the same
    request id.
    """

    @functools.cached_property
    def _channel(self) -> grpc.aio.Channel:
        """The first call opens it, because only then its event loop is running."""
        options = channel.options(self.settings)
        if self._credentials:
            return grpc.aio.secure_channel(self.settings.address, self._credentials, options)
        return grpc.aio.insecure_channel(self.settings.address, options)

    async def close(self) -> None:
        """Close the connection. Running calls fail with Cancelled."""
        self._closed = True
        self._upload_channel.close()
        if "_channel" in self.__dict__:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _carry_out(self, call: Call[T]) -> T:
        method = self._method(self._channel, call.path)
        request_id, arguments = self._prepare(call, self.settings.timeout_s)
        try:
            answer: bytes = await method(call.request, **arguments)
        except grpc.RpcError as error:
            raise self._error(error, request_id) from error
        return call.decode(answer)

    async def _send(self, upload: Upload[T]) -> T:
        loop = asyncio.get_running_loop()
        bridge = Bridge(loop)
        items = upload.items
        exchange = Exchange(
            upload,
            bridge.items(items) if isinstance(items, AsyncIterable) else items,
            bridge.listener(upload.on_event) if upload.on_event else None,
        )
        # The upload has its own thread: the event loop has few, and the documents may need them.
        threads = ThreadPoolExecutor(1, "drillcore-upload")
        try:
            return await loop.run_in_executor(threads, self._exchange, upload, exchange)
        finally:
            exchange.cancel()
            bridge.close()
            threads.shutdown(wait=False)

    async def _carry(self, resumable: Resumable[T]) -> T:
        loop = asyncio.get_running_loop()
        listener = Bridge(loop).listener(resumable.on_event) if resumable.on_event else None
        resumer = Resumer(resumable, self, listener)
        threads = ThreadPoolExecutor(1, "drillcore-carry")
        try:
            return await loop.run_in_executor(threads, resumer.run)
        finally:
            resumer.cancel()
            threads.shutdown(wait=False)

    async def _iterate(self, pages: Pages[T]) -> AsyncIterator[T]:
        page = await self._carry_out(pages(""))
        for item in page.items:
            yield item
        while page.next_page_token:
            page = await self._carry_out(pages(page.next_page_token))
            for item in page.items:
                yield item

    async def _carry_out_each(self, calls: Iterable[Call[T]]) -> AsyncIterator[T]:
        for call in calls:
            yield await self._carry_out(call)

    async def _follow(self, follow: Follow[T]) -> AsyncIterator[T]:
        follower = Follower(follow, self)
        batches = follower.batches()
        threads = ThreadPoolExecutor(1, "drillcore-follow")
        try:
            while batch := await asyncio.get_running_loop().run_in_executor(threads, next, batches, None):
                for item in batch.items:
                    yield item
                follow.done_with(batch)
        finally:
            follower.cancel()
            threads.shutdown(wait=False)


def _serialize(request: Message) -> bytes:
    return request.SerializeToString()
