"""Grants on the command line: ROLE[@TENANT][:CORPUS[:LEVEL,LEVEL...]]."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import click

from drillcore._account_results import Grant, Role
from drillcore._client import Client
from drillcore.cli.session import as_id, find_corpus_id
from drillcore.cli.values import LevelName


class GrantText(click.ParamType[Grant]):
    """A grant, its tenant and corpus still as they were typed."""

    name = "role[@tenant][:corpus[:levels]]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Grant:
        if isinstance(value, Grant):
            return value
        who, _, where = str(value).partition(":")
        role, _, tenant = who.partition("@")
        corpus, _, levels = where.partition(":")
        if role not in {known.value for known in Role}:
            self.fail(f"{role!r} is no role: {', '.join(known.value for known in Role)}", param, ctx)
        named = [LevelName().convert(level, param, ctx) for level in levels.split(",") if level]
        return Grant(Role(role), tenant or None, corpus or None, tuple(named))


def resolved(client: Client, grants: Iterable[Grant]) -> list[Grant]:
    """The grants with the ids of what they name."""
    return [_resolved(client, grant) for grant in grants]


def _resolved(client: Client, grant: Grant) -> Grant:
    tenant, corpus = grant.tenant_id, grant.corpus_id
    if tenant is not None:
        tenant = as_id(str(tenant)) or client.get_tenant(name=str(tenant)).id
    if corpus is not None and tenant is not None:
        corpus = as_id(str(corpus)) or client.get_corpus(name=str(corpus), tenant_id=tenant).id
    elif corpus is not None:
        corpus = find_corpus_id(client, str(corpus))
    return dataclasses.replace(grant, tenant_id=tenant, corpus_id=corpus)


def grant_text(grant: Grant) -> str:
    """The grant in words."""
    parts = [grant.role.value]
    if grant.tenant_id is not None:
        parts.append(f"in tenant {grant.tenant_id}")
    if grant.corpus_id is not None:
        parts.append(f"for corpus {grant.corpus_id}")
    if grant.levels:
        parts.append("at " + ", ".join(level.name.lower() for level in grant.levels))
    return " ".join(parts)
