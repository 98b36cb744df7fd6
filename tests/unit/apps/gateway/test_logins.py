"""Callers log in to servers themselves: a real issuer, a real browser made of redirects."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.support.issuer import Issuer, Person, issuer_at_work, protected
from tests.support.ports import find_port
from tests.support.redis import redis_server
from tests.support.until import until

from trimaran import connect
from trimaran.apps.gateway.gateway import Gateway
from trimaran.errors import CallError

from .conftest import gateway_of, machine, read, url_of
from .test_call_control import KEYS

pytestmark = pytest.mark.slow


def remote(name: str, url: str) -> str:
    return f'[server.{name}]\ntransport = "http"\nurl = "{url}"\n'


def client_of(gateway: Any, key: str, person: Person, **options: Any) -> Any:
    return connect(gateway.url, headers={"X-API-Key": key}, on_elicit=person, **options)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_each_caller_logs_in_once_and_calls_in_its_own_name(era: Any) -> None:
    async with issuer_at_work() as issuer, protected(issuer) as url, gateway_of(KEYS + remote("notes", url)) as gateway:
        ann, bob = Person(), Person()
        async with client_of(gateway, "ann-key-123", ann, era=era) as client:
            assert {tool.name for tool in await client.list_tools_all()} == {"notes_login", "notes_logout"}
            assert [*await client.list_prompts(), *await client.list_resources()] == []
            assert (await client.call_tool("notes_login")).data == "You are logged in to notes."
            assert "for the caller <b>ann</b>" in ann.pages[0]
            await until(lambda: gateway.served["notes"].is_up, "the catalog is listed with her login")
            await until(lambda: "notes_whoami" in gateway.server.tools.view)
            assert (await client.call_tool("notes_whoami")).data == "Ann"
        issuer.person = "Bob"
        async with client_of(gateway, "bob-key-123", bob, era=era) as client:
            # No login before: the call itself asks for one, and goes on.
            assert (await client.call_tool("notes_whoami")).data == "Bob"
            assert (await client.call_tool("notes_whoami")).data == "Bob"
            assert len(bob.pages) == 1
            await client.call_tool("notes_logout")
            assert (await client.call_tool("notes_whoami")).data == "Bob"
            assert len(bob.pages) == 2
        async with client_of(gateway, "ann-key-123", ann, era=era) as client:
            assert (await client.call_tool("notes_whoami")).data == "Ann"
        assert len(ann.pages) == 1


async def test_a_server_gets_no_token_by_the_login_of_another() -> None:
    """It names its issuer by itself, and may lie."""
    async with issuer_at_work() as issuer, protected(issuer) as first, protected(issuer) as second:
        text = KEYS + remote("notes", first) + remote("mails", second)
        person = Person()
        async with gateway_of(text) as gateway, client_of(gateway, "ann-key-123", person) as client:
            await client.call_tool("notes_login")
            await client.call_tool("mails_login")
        assert issuer.logins == 2


async def test_one_login_serves_every_server_that_shares_it() -> None:
    async with issuer_at_work() as issuer, protected(issuer) as first, protected(issuer) as second:
        shared = '[gateway]\nshared_logins = ["notes", "mails"]\n'
        text = shared + KEYS + remote("notes", first) + remote("mails", second)
        person = Person()
        async with gateway_of(text) as gateway, client_of(gateway, "ann-key-123", person) as client:
            await client.call_tool("notes_login")
            await client.call_tool("mails_login")
            await until(lambda: {"notes_whoami", "mails_whoami"} <= gateway.server.tools.view.keys())
            assert (await client.call_tool("mails_whoami")).data == "Ann"
            assert (await client.call_tool("notes_whoami")).data == "Ann"
        assert len(person.pages) == 1
        assert issuer.logins == 1


async def test_a_login_that_the_issuer_has_ended_is_asked_for_again() -> None:
    async with issuer_at_work() as issuer, protected(issuer) as url, gateway_of(KEYS + remote("notes", url)) as gateway:
        person = Person()
        async with client_of(gateway, "ann-key-123", person) as client:
            await client.call_tool("notes_login")
            await until(lambda: "notes_whoami" in gateway.server.tools.view)
            assert (await client.call_tool("notes_whoami")).data == "Ann"
            issuer.tokens.clear()  # the access token is over; the refresh token gets another one
            assert (await client.call_tool("notes_whoami")).data == "Ann"
            assert len(person.pages) == 1
            issuer.end_everything()
            with pytest.raises(CallError) as raised:
                await client.call_tool("notes_whoami")
            assert raised.value.data == {"upstream": "notes", "kind": "unauthorized"}
            assert (await client.call_tool("notes_whoami")).data == "Ann"
            assert len(person.pages) == 2
            await client.call_tool("notes_logout")
            assert set(issuer.revoked) >= {"access", "refresh"}


async def test_who_does_not_log_in_gets_a_typed_error() -> None:
    async with issuer_at_work() as issuer, protected(issuer) as url, gateway_of(KEYS + remote("notes", url)) as gateway:
        async with client_of(gateway, "ann-key-123", Person()) as client:
            await client.call_tool("notes_login")
            await until(lambda: "notes_whoami" in gateway.server.tools.view)
        for era in ("modern", "legacy"):
            async with client_of(gateway, "bob-key-123", Person(does_log_in=False), era=era) as client:
                with pytest.raises(CallError, match="you did not log in") as raised:
                    await client.call_tool("notes_whoami")
                assert raised.value.data == {"upstream": "notes", "kind": "login"}


async def test_nobody_has_somebody_else_log_in_for_them() -> None:
    """The address of the issuer alone names nobody: whoever is sent it would log in for the caller that sent it."""
    async with issuer_at_work() as issuer, protected(issuer) as url, gateway_of(KEYS + remote("notes", url)) as gateway:
        caller, victim = Person(), Person()
        answers: list[str] = []

        async def send_on(question: Any) -> str:
            """Agree in a browser of one's own, as far as the issuer, and let somebody else go on from there."""
            status, issuer_url = await asyncio.to_thread(caller.agree, question.url)
            assert status == 303
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asyncio.to_thread(victim.open, issuer_url)
            with refused.value:
                assert refused.value.code == 400
                answers.append(refused.value.read().decode())
            victim.send_cookie("trimaran_login_0123456789abcdef=made-up")  # of another login: it proves nothing
            await asyncio.to_thread(victim.open, issuer_url)
            return "decline"

        async with connect(gateway.url, headers={"X-API-Key": "ann-key-123"}, on_elicit=send_on) as client:
            await client.call_tool("notes_login")
        assert "was not begun in this browser" in answers[0]
        async with client_of(gateway, "ann-key-123", caller) as client:
            await client.call_tool("notes_login")
        assert len(caller.pages) == 1, "she is not logged in as the victim, and is asked"


async def test_a_server_has_the_gateway_ask_nobody_inside() -> None:
    """A server says who its issuer is. Only an operator says that this may be a machine of the company."""
    issuer = Issuer()
    issuer.url = "https://10.255.255.1"
    async with protected(issuer) as url, gateway_of(KEYS + remote("notes", url)) as gateway:
        async with client_of(gateway, "ann-key-123", Person()) as client:
            with pytest.raises(CallError, match="not a safe URL") as raised:
                await client.call_tool("notes_login")
            assert raised.value.data == {"upstream": "notes", "kind": "login"}


async def test_only_the_page_of_the_gateway_begins_a_login() -> None:
    async with issuer_at_work() as issuer, protected(issuer) as url, gateway_of(KEYS + remote("notes", url)) as gateway:
        refusals: list[int] = []

        async def from_elsewhere(question: Any) -> str:
            request = urllib.request.Request(question.url, b"", {"Origin": "https://evil.example"})
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asyncio.to_thread(urllib.request.urlopen, request)
            with refused.value:
                refusals.append(refused.value.code)
            return "decline"

        async with connect(gateway.url, headers={"X-API-Key": "ann-key-123"}, on_elicit=from_elsewhere) as client:
            await client.call_tool("notes_login")
        assert refusals == [403]


async def test_logins_are_sealed_in_the_store_and_outlive_the_process(tmp_path: Path) -> None:
    keys = '[gateway]\nsecret_keys = ["the same key for all gateways"]\n'
    with redis_server(tmp_path) as redis:
        async with issuer_at_work() as issuer, protected(issuer) as url:
            text = keys + KEYS + remote("notes", url)
            person = Person()
            async with gateway_of(text, store=redis.url) as gateway:
                async with client_of(gateway, "ann-key-123", person) as client:
                    await client.call_tool("notes_login")
            (refresh,) = issuer._refresh  # pyright: ignore[reportPrivateUsage]
            written = await asyncio.to_thread((tmp_path / "appendonlydir").rglob, "*")
            assert not any(refresh.encode() in file.read_bytes() for file in written if file.is_file())
            async with gateway_of(text, store=redis.url) as gateway:
                async with client_of(gateway, "ann-key-123", Person(does_log_in=False)) as client:
                    assert (await client.call_tool("notes_login")).data == "You are logged in to notes."
        assert issuer.logins == 1


async def test_a_person_may_come_to_another_process_than_the_one_that_asked(tmp_path: Path) -> None:
    port = find_port()
    keys = f'[gateway]\nsecret_keys = ["the same key for all gateways"]\npublic_url = "http://127.0.0.1:{port}"\n'
    with redis_server(tmp_path) as redis:
        async with issuer_at_work() as issuer, protected(issuer) as url:
            text = keys + KEYS + remote("notes", url)
            config = read(text)
            async with (
                Gateway(config, port=port, store=redis.url, machine=machine()),
                Gateway(config, port=0, store=redis.url, machine=machine()) as second,
                connect(url_of(second, "/mcp"), headers={"X-API-Key": "ann-key-123"}, on_elicit=Person()) as client,
            ):
                assert (await client.call_tool("notes_login")).data == "You are logged in to notes."
