"""Other people's clients log in to our server, and our client to other people's servers; oidc-provider issues the tokens."""

from __future__ import annotations

import pytest

from trimaran import connect
from trimaran.client.options import Era
from trimaran.oauth import OAuth

from ..harness import DEADLINE
from .authority import SCOPES, Authority, Person
from .notes import guarded_notes
from .peers import CLIENTS, SERVERS, guarded, log_in

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_their_client_logs_in_to_our_server(authority: Authority, client: str, era: Era) -> None:
    """R170, R174: all they know is our URL; what we publish leads them to the authorization server and back."""
    person = Person("grace")
    async with guarded_notes(authority, required=SCOPES) as url:
        found = await log_in(client, era, url, person)
    [asked] = person.asked
    assert found["tools"] == ["whoami", "write"]
    assert found["whoami"]["subject"] == "grace"
    assert found["whoami"]["client"] == asked["client_id"]
    assert asked["resource"] == url


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize("server", SERVERS)
async def test_our_client_logs_in_to_their_server(authority: Authority, server: str, era: Era) -> None:
    person = Person("grace")
    with guarded(server, authority).running() as there:
        async with connect(there.url(), era=era, auth=OAuth(login=person)) as client:
            assert [tool.name for tool in await client.list_tools()] == ["whoami", "write"]
            assert (await client.call_tool("whoami")).data == {"subject": "grace", "scopes": ["notes:read"]}
    [asked] = person.asked
    assert asked["resource"] == there.url()
