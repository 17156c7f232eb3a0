"""The two clients. Their methods are the calls of `_calls`, bound once for both; only carrying a call out differs."""

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

from drillcore import (
    _account_calls,
    _audit_calls,
    _calls,
    _channel,
    _community_calls,
    _core_calls,
    _document_calls,
    _embedding_calls,
    _envelope_calls,
    _event_calls,
    _export_calls,
    _fact_calls,
    _graph_calls,
    _hierarchy_calls,
    _node_calls,
    _provenance_calls,
    _quad_calls,
    _signature_calls,
    _source_calls,
)
from drillcore._call import Call, Pages
from drillcore._client_settings import DEFAULT_ADDRESS, TLS, ClientSettings, load_client_settings
from drillcore._follow import Follow, Follower
from drillcore._resume import Resumable, Resumer
from drillcore._upload import Bridge, Exchange, Upload
from drillcore.errors import DrillcoreError, from_rpc_error

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_OF_SERVER = ("server_account", "server_accounts", "server_log")
"""Fields that say that a request is about the server itself, and so about no tenant."""


class _Method(Protocol[P, T_co]):
    """A method that returns T on a Client and awaits T on an AsyncClient."""

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


def _paged(build: Callable[P, Pages[T]]) -> _Iteration[P, T]:
    """The method that iterates over the items of all pages."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._iterate(build(*args, **kwargs))

    return cast(_Iteration[P, T], _dressed(method, build))


def _series(build: Callable[P, Iterable[Call[T]]]) -> _Iteration[P, T]:
    """The method that makes calls one after the other, and iterates over their results."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._carry_out_each(build(*args, **kwargs))

    return cast(_Iteration[P, T], _dressed(method, build))


def _followed(build: Callable[P, Follow[T]]) -> _Iteration[P, T]:
    """The method that iterates over what comes, for as long as it comes."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._follow(build(*args, **kwargs))

    return cast(_Iteration[P, T], _dressed(method, build))


def _upload(build: Callable[P, Upload[T]]) -> _Method[P, T]:
    """The method that builds an upload and carries it out."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._send(build(*args, **kwargs))

    return cast(_Method[P, T], _dressed(method, build))


def _resumed(build: Callable[P, Resumable[T]]) -> _Method[P, T]:
    """The method that carries a file, in as many calls as it takes."""

    def method(self: Client | AsyncClient, *args: P.args, **kwargs: P.kwargs) -> object:
        return self._carry(build(*args, **kwargs))

    return cast(_Method[P, T], _dressed(method, build))


def _dressed(method: Callable[..., object], build: Callable[..., object]) -> object:
    """The method with name, documentation and arguments of the function that builds its call."""
    signature = inspect.signature(build)
    myself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    functools.update_wrapper(method, build)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what inspect and help() look at
        parameters=[myself, *signature.parameters.values()], return_annotation=inspect.Signature.empty
    )
    return method


class _Api:
    """What both clients have: their settings and the calls."""

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
        """Connects with the first call, not now. Arguments: see `ClientSettings`.

        Raises SettingsError if the token would travel unencrypted to another machine and `allow_insecure` is not set.
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
        """A client by these settings, else by those in the settings file and the environment. Raises SettingsError."""
        client = cls.__new__(cls)
        client._start(settings or load_client_settings().settings)
        return client

    def _start(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._token = settings.bearer_token()
        self._credentials = _channel.credentials(settings)
        # Blocks, in both clients: an upload of grpc.aio that the server ends loses the reason (grpc/grpc#36066).
        self._upload_channel = _channel.open_upload_channel(settings, self._credentials)
        self._closed = False
        self._methods: dict[str, Any] = {}

    def _method(self, channel: grpc.Channel | grpc.aio.Channel, path: str, *, streams: bool = False) -> Any:
        """What carries out such calls: takes a request and gives the bytes of the answer, or for streams several."""
        if self._closed:
            raise RuntimeError("this client is closed")
        if path not in self._methods:
            kind = channel.stream_stream if streams else channel.unary_unary
            self._methods[path] = kind(path, request_serializer=_serialize)
        return self._methods[path]

    def _prepare(self, call: Call[T] | Upload[T], timeout_s: float | None) -> tuple[str, dict[str, Any]]:
        """The request id, and the keyword arguments that gRPC needs beside the request. Fills in the default tenant."""
        request = call.request
        of_server = any(getattr(request, name, False) for name in _OF_SERVER)
        if self.settings.tenant_id and not of_server and getattr(request, "tenant_id", None) == "":
            request.tenant_id = self.settings.tenant_id  # type: ignore[attr-defined]  # checked just above
        _channel.check_secrets(self.settings, self._credentials, request)
        request_id = str(uuid.uuid4()) if call.request_id is None else _channel.check_request_id(call.request_id)
        metadata = _channel.metadata(self._token, request_id, self.settings.reason, self.settings.residency)
        return request_id, {"metadata": metadata, "timeout": timeout_s if call.timeout_s is None else call.timeout_s}

    def _exchange(self, upload: Upload[T], exchange: Exchange[T]) -> T:
        """Carries out an upload, in the thread of the caller."""
        method = self._method(self._upload_channel, upload.path, streams=True)
        request_id, arguments = self._prepare(upload, None)
        try:
            return exchange.run(method, arguments).result(request_id)
        except grpc.RpcError as error:
            raise self._error(error, request_id) from error

    def _open(self, call: Call[T], requests: Callable[[Message], Iterator[Message]]) -> tuple[str, Any]:
        """Begins a stream: the request id, and the answers as they come."""
        method = self._method(self._upload_channel, call.path, streams=True)
        request_id, arguments = self._prepare(call, None)
        return request_id, method(requests(call.request), **arguments)

    def _error(self, error: grpc.RpcError, request_id: str) -> DrillcoreError:
        return from_rpc_error(error, request_id=request_id, address=self.settings.address)

    server_info = _rpc(_calls.server_info)
    create_tenant = _rpc(_calls.create_tenant)
    get_tenant = _rpc(_calls.get_tenant)
    list_tenants = _rpc(_calls.list_tenants)
    iter_tenants = _paged(_calls.iter_tenants)
    update_tenant = _rpc(_calls.update_tenant)
    delete_tenant = _rpc(_calls.delete_tenant)
    create_corpus = _rpc(_calls.create_corpus)
    get_corpus = _rpc(_calls.get_corpus)
    list_corpora = _rpc(_calls.list_corpora)
    iter_corpora = _paged(_calls.iter_corpora)
    update_corpus = _rpc(_calls.update_corpus)
    delete_corpus = _rpc(_calls.delete_corpus)
    trim_corpus = _rpc(_calls.trim_corpus)
    add_documents = _upload(_document_calls.add_documents)
    update_document = _upload(_document_calls.update_document)
    put_hierarchy = _upload(_hierarchy_calls.put_hierarchy)
    remove_documents = _rpc(_document_calls.remove_documents)
    get_document = _rpc(_document_calls.get_document)
    list_documents = _rpc(_document_calls.list_documents)
    iter_documents = _paged(_document_calls.iter_documents)
    get_node = _rpc(_node_calls.get_node)
    query = _rpc(_node_calls.query)
    iter_query = _paged(_node_calls.iter_query)
    drill_down = _rpc(_node_calls.drill_down)
    iter_drill_down = _paged(_node_calls.iter_drill_down)
    roll_up = _rpc(_node_calls.roll_up)
    history = _rpc(_node_calls.history)
    iter_history = _paged(_node_calls.iter_history)
    put_facts = _rpc(_fact_calls.put_facts)
    put_fact_batches = _series(_fact_calls.put_fact_batches)
    get_facts = _rpc(_fact_calls.get_facts)
    list_facts = _rpc(_fact_calls.list_facts)
    iter_facts = _paged(_fact_calls.iter_facts)
    update_fact = _rpc(_fact_calls.update_fact)
    set_fact_status = _rpc(_fact_calls.set_fact_status)
    archive_facts = _rpc(_fact_calls.archive_facts)
    restore_facts = _rpc(_fact_calls.restore_facts)
    search_facts = _rpc(_fact_calls.search_facts)
    get_state = _rpc(_fact_calls.get_state)
    end_session = _rpc(_fact_calls.end_session)
    preview_envelope = _rpc(_envelope_calls.preview_envelope)
    pack_envelope = _rpc(_envelope_calls.pack_envelope)
    continue_envelope = _rpc(_envelope_calls.continue_envelope)
    get_envelope = _rpc(_envelope_calls.get_envelope)
    list_communities = _rpc(_community_calls.list_communities)
    iter_communities = _paged(_community_calls.iter_communities)
    get_community = _rpc(_community_calls.get_community)
    iter_community_facts = _paged(_community_calls.iter_community_facts)
    recompute_communities = _rpc(_community_calls.recompute_communities)
    get_source = _rpc(_source_calls.get_source)
    list_sources = _rpc(_source_calls.list_sources)
    iter_sources = _paged(_source_calls.iter_sources)
    erase_source = _rpc(_source_calls.erase_source)
    list_erasures = _rpc(_source_calls.list_erasures)
    iter_erasures = _paged(_source_calls.iter_erasures)
    purge_erased = _rpc(_source_calls.purge_erased)
    watch_events = _followed(_event_calls.watch_events)
    migrate_embeddings = _followed(_embedding_calls.migrate_embeddings)
    get_migration = _rpc(_embedding_calls.get_migration)
    query_audit = _rpc(_audit_calls.query_audit)
    iter_audit = _paged(_audit_calls.iter_audit)
    wait_proof = _rpc(_audit_calls.wait_proof)
    get_checkpoint = _rpc(_audit_calls.get_checkpoint)
    consistency_proof = _rpc(_audit_calls.consistency_proof)
    verify_audit = _rpc(_audit_calls.verify_audit)
    export_audit = _upload(_audit_calls.export_audit)
    export_corpus = _upload(_export_calls.export_corpus)
    review_audit = _rpc(_audit_calls.review_audit)
    list_reviews = _rpc(_audit_calls.list_reviews)
    iter_reviews = _paged(_audit_calls.iter_reviews)
    rotate_audit_key = _rpc(_audit_calls.rotate_audit_key)
    prepare_signature = _rpc(_signature_calls.prepare_signature)
    sign_record = _rpc(_signature_calls.sign_record)
    list_signatures = _rpc(_signature_calls.list_signatures)
    iter_signatures = _paged(_signature_calls.iter_signatures)
    put_quads = _rpc(_quad_calls.put_quads)
    remove_quads = _rpc(_quad_calls.remove_quads)
    match_quads = _rpc(_quad_calls.match_quads)
    iter_quads = _paged(_quad_calls.iter_quads)
    import_quads = _upload(_quad_calls.import_quads)
    export_quads = _upload(_quad_calls.export_quads)
    explain = _rpc(_provenance_calls.explain)
    export_core = _resumed(_core_calls.export_core)
    import_core = _resumed(_core_calls.import_core)
    put_turns = _rpc(_graph_calls.put_turns)
    put_edges = _rpc(_graph_calls.put_edges)
    remove_turns = _rpc(_graph_calls.remove_turns)
    list_turns = _rpc(_graph_calls.list_turns)
    iter_turns = _paged(_graph_calls.iter_turns)
    slice = _rpc(_graph_calls.slice)
    login = _rpc(_account_calls.login)
    logout = _rpc(_account_calls.logout)
    create_account = _rpc(_account_calls.create_account)
    get_account = _rpc(_account_calls.get_account)
    list_accounts = _rpc(_account_calls.list_accounts)
    iter_accounts = _paged(_account_calls.iter_accounts)
    update_account = _rpc(_account_calls.update_account)
    set_grants = _rpc(_account_calls.set_grants)
    set_password = _rpc(_account_calls.set_password)
    create_token = _rpc(_account_calls.create_token)
    list_tokens = _rpc(_account_calls.list_tokens)
    revoke_token = _rpc(_account_calls.revoke_token)


class Client(_Api):
    """Calls a Drillcore server and waits for the answer. May be shared between threads.

    Failed calls raise a DrillcoreError. A call whose server does not answer is tried again, under the same request id.
    """

    def _start(self, settings: ClientSettings) -> None:
        super()._start(settings)
        self._channel = _channel.open_channel(settings, self._credentials)

    def close(self) -> None:
        """Give the connection back. Calls under way fail with Cancelled."""
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
            raise TypeError("a Client cannot iterate over async documents: use an AsyncClient")
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
    """Calls a Drillcore server from asyncio. Belongs to the event loop of its first call.

    Failed calls raise a DrillcoreError. A call whose server does not answer is tried again, under the same request id.
    """

    @functools.cached_property
    def _channel(self) -> grpc.aio.Channel:
        """Opened by the first call, when the event loop it must belong to is running."""
        options = _channel.options(self.settings)
        if self._credentials:
            return grpc.aio.secure_channel(self.settings.address, self._credentials, options)
        return grpc.aio.insecure_channel(self.settings.address, options)

    async def close(self) -> None:
        """Give the connection back. Calls under way fail with Cancelled."""
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
        # A thread of its own: the event loop's are few, and the documents may need them.
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
