"""Makes a call through either client, so that a test can check both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from drillcore import AsyncClient, Client
from tests.support.data.fact_messages import TENANT


def sync(address: str, method: str, *args: Any, client_timeout_s: float = 30, **options: Any) -> Any:
    with Client(address, tenant_id=TENANT, timeout_s=client_timeout_s) as client:
        result = getattr(client, method)(*args, **options)
        return list(result) if isinstance(result, Iterator) else result


def asynchronous(address: str, method: str, *args: Any, client_timeout_s: float = 30, **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(address, tenant_id=TENANT, timeout_s=client_timeout_s) as client:
            result = getattr(client, method)(*args, **options)
            return [item async for item in result] if isinstance(result, AsyncIterator) else await result

    return asyncio.run(run())
