"""`drillcore tenant ...`"""

from __future__ import annotations

from uuid import UUID

import click

from drillcore._api.tenants import Tenant
from drillcore._client import Client
from drillcore.cli.options import (
    connection_options,
    page_options,
    set_option,
    unset_option,
    version_option,
    write_options,
    yes_option,
)
from drillcore.cli.session import Session, as_id, fetch_pages, pass_session
from drillcore.cli.text import listing, record

_region_option = click.option(
    "--region",
    "regions",
    multiple=True,
    help="Region in which the corpora that it owns or reads must be. Repeatable.  [default: any region]",
)


@click.group()
def tenant() -> None:
    """Create, show, change and delete tenants. For operators.

    A tenant owns corpora. It sees nothing of other tenants. Commands take its id or its name.
    """


@tenant.command()
@click.argument("name")
@set_option
@click.option("--id", "tenant_id", type=click.UUID, help="An id of your own.  [default: the server makes one]")
@_region_option
@write_options
@connection_options
@pass_session
def create(
    session: Session,
    name: str,
    metadata: tuple[tuple[str, str], ...],
    tenant_id: UUID | None,
    regions: tuple[str, ...],
    request_id: str | None,
) -> None:
    """Create a tenant.

    Example: drillcore tenant create acme --set contact=ann@acme.example --region eu-west-1
    """
    with session.client(in_tenant=False) as client:
        created = client.create_tenant(
            name, metadata=dict(metadata), tenant_id=tenant_id, allowed_regions=regions, request_id=request_id
        )
    _emit(session, created)


@tenant.command()
@click.argument("reference", metavar="ID|NAME")
@connection_options
@pass_session
def get(session: Session, reference: str) -> None:
    """Show a tenant."""
    with session.client(in_tenant=False) as client:
        _emit(session, _find(client, reference))


@tenant.command("list")
@page_options
@connection_options
@pass_session
def list_(session: Session, page_size: int, page_token: str, all_pages: bool) -> None:
    """List tenants, one page unless --all."""
    with session.client(in_tenant=False) as client:
        page = fetch_pages(
            lambda token: client.list_tenants(page_size=page_size, page_token=token), page_token, all_pages
        )
    rows = [(found.id, found.name, found.version, found.metadata) for found in page.items]
    session.emit_page("tenants", page, listing(["id", "name", "version", "metadata"], rows))


@tenant.command()
@click.argument("reference", metavar="ID|NAME")
@click.option("--name", help="New name.")
@set_option
@unset_option
@_region_option
@click.option("--every-region", is_flag=True, help="Allow corpora in any region.")
@version_option
@write_options
@connection_options
@pass_session
def update(
    session: Session,
    reference: str,
    name: str | None,
    metadata: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    regions: tuple[str, ...],
    every_region: bool,
    expected_version: int | None,
    request_id: str | None,
) -> None:
    """Change a tenant's name, metadata or allowed regions. What you do not give stays as it is.

    \b
    Examples:
      drillcore tenant update acme --set contact=bob@acme.example --unset draft
      drillcore tenant update acme --region eu-west-1 --region eu-central-1
    """
    if regions and every_region:
        raise click.UsageError("give either --region or --every-region")
    if name is None and not metadata and not unset and not regions and not every_region:
        raise click.UsageError("give at least one thing to change: see --help")
    with session.client(in_tenant=False) as client:
        updated = client.update_tenant(
            _find_id(client, reference),
            name=name,
            set_metadata=dict(metadata),
            remove_metadata=unset,
            allowed_regions=() if every_region else regions or None,
            expected_version=expected_version,
            request_id=request_id,
        )
    _emit(session, updated)


@tenant.command()
@click.argument("reference", metavar="ID|NAME")
@yes_option
@version_option
@write_options
@connection_options
@pass_session
def delete(session: Session, reference: str, yes: bool, expected_version: int | None, request_id: str | None) -> None:
    """Delete a tenant that has no corpora. Its id is never used again."""
    session.confirm(f"Delete the tenant {reference}", yes)
    with session.client(in_tenant=False) as client:
        tenant_id = _find_id(client, reference)
        client.delete_tenant(tenant_id, expected_version=expected_version, request_id=request_id)
    session.emit({"deleted": tenant_id}, f"deleted tenant {tenant_id}")


def _find(client: Client, reference: str) -> Tenant:
    tenant_id = as_id(reference)
    return client.get_tenant(tenant_id) if tenant_id else client.get_tenant(name=reference)


def _find_id(client: Client, reference: str) -> UUID:
    return as_id(reference) or client.get_tenant(name=reference).id


def _emit(session: Session, found: Tenant) -> None:
    session.emit(found, record(found))
