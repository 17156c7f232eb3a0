"""The two clients. Their methods are the calls of `_calls`, bound once for both; only carrying a call out differs."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast, overload

import grpc
import grpc.aio
from google.protobuf.message import Message

from drillcore import _calls, _channel
from drillcore._calls import Call, Pages
from drillcore._client_settings import DEFAULT_ADDRESS, TLS, ClientSettings, load_client_settings
from drillcore.errors import from_rpc_error

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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
        self._closed = False
        self._methods: dict[str, Any] = {}

    def _method(self, channel: grpc.Channel | grpc.aio.Channel, path: str) -> Any:
        """What carries out the call of this path: takes a request, gives the bytes of the answer."""
        if self._closed:
            raise RuntimeError("this client is closed")
        if path not in self._methods:
            self._methods[path] = channel.unary_unary(path, request_serializer=_serialize)
        return self._methods[path]

    def _prepare(self, call: Call[T]) -> tuple[str, dict[str, Any]]:
        """The request id, and the keyword arguments that gRPC needs."""
        request = call.request
        if self.settings.tenant_id and getattr(request, "tenant_id", None) == "":
            request.tenant_id = self.settings.tenant_id  # type: ignore[attr-defined]  # checked just above
        request_id = str(uuid.uuid4()) if call.request_id is None else _channel.check_request_id(call.request_id)
        metadata = _channel.metadata(self._token, request_id)
        timeout_s = self.settings.timeout_s if call.timeout_s is None else call.timeout_s
        return request_id, {"request": request, "metadata": metadata, "timeout": timeout_s}

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


class Client(_Api):
    """Calls a Drillcore server and waits for the answer. May be shared between threads.

    Failed calls raise a DrillcoreError. A call whose server does not answer is tried again, under the same request id.
    """

    def _start(self, settings: ClientSettings) -> None:
        super()._start(settings)
        options = _channel.options(settings)
        self._channel = (
            grpc.secure_channel(settings.address, self._credentials, options)
            if self._credentials
            else grpc.insecure_channel(settings.address, options)
        )

    def close(self) -> None:
        """Give the connection back. Calls under way fail with Cancelled."""
        self._closed = True
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _carry_out(self, call: Call[T]) -> T:
        method = self._method(self._channel, call.path)
        request_id, arguments = self._prepare(call)
        try:
            answer: bytes = method(**arguments)
        except grpc.RpcError as error:
            raise from_rpc_error(error, request_id=request_id, address=self.settings.address) from error
        return call.decode(answer)

    def _iterate(self, pages: Pages[T]) -> Iterator[T]:
        page = self._carry_out(pages(""))
        yield from page.items
        while page.next_page_token:
            page = self._carry_out(pages(page.next_page_token))
            yield from page.items


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
        request_id, arguments = self._prepare(call)
        try:
            answer: bytes = await method(**arguments)
        except grpc.RpcError as error:
            raise from_rpc_error(error, request_id=request_id, address=self.settings.address) from error
        return call.decode(answer)

    async def _iterate(self, pages: Pages[T]) -> AsyncIterator[T]:
        page = await self._carry_out(pages(""))
        for item in page.items:
            yield item
        while page.next_page_token:
            page = await self._carry_out(pages(page.next_page_token))
            for item in page.items:
                yield item


def _serialize(request: Message) -> bytes:
    return request.SerializeToString()
