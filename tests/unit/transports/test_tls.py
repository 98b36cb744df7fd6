"""The certificates of a TLS bind: what is taken, what is refused and why, and how they are read again."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority

from trimaran import Server
from trimaran.errors import ConfigError
from trimaran.serve import HttpServer
from trimaran.transports.tls import Certificates


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def load(tls: Any) -> Certificates:
    return Certificates(tls, ["http/1.1"])


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tls",
    ["cert.pem", 1, ("cert.pem",), ("a", "b", "c"), {}, {"certfile": "cert.pem"}, {"certfile": "a", "what": "b"}],
    ids=str,
)
def test_what_is_no_tls_option_is_refused_with_the_forms_there_are(tls: Any) -> None:
    with pytest.raises(ConfigError, match='tls= takes .*"certfile": "cert.pem", "keyfile": "key.pem"'):
        load(tls)


def test_a_missing_file_is_named(authority: Authority) -> None:
    cert, key = authority.issue("localhost")
    with pytest.raises(ConfigError, match="keyfile '/nowhere/key.pem' does not exist"):
        load((cert, "/nowhere/key.pem"))
    with pytest.raises(ConfigError, match="cacertfile 'none.pem' does not exist"):
        load({"certfile": cert, "keyfile": key, "cacertfile": "none.pem"})


def test_a_directory_cannot_be_read(authority: Authority, tmp_path: Path) -> None:
    _, key = authority.issue("localhost")
    with pytest.raises(ConfigError, match="certfile .* cannot be read: Is a directory"):
        load((tmp_path, key))


def test_the_key_of_another_certificate_is_refused(authority: Authority) -> None:
    cert, _ = authority.issue("localhost")
    _, key = authority.issue("localhost")
    with pytest.raises(ConfigError, match="keyfile .* is not the key of the certificate in"):
        load((cert, key))


def test_swapped_files_are_noticed(authority: Authority) -> None:
    cert, key = authority.issue("localhost")
    with pytest.raises(ConfigError, match="certfile .* holds no certificate in PEM"):
        load((key, cert))
    with pytest.raises(ConfigError, match="keyfile .* holds no private key in PEM"):
        load((cert, cert))


@pytest.mark.parametrize("text", ["", "hello", "-----BEGIN CERTIFICATE-----\nzzz\n-----END CERTIFICATE-----\n"])
def test_what_is_no_pem_is_refused(authority: Authority, tmp_path: Path, text: str) -> None:
    cert, key = authority.issue("localhost")
    bad = write(tmp_path / "bad.pem", text)
    with pytest.raises(ConfigError, match="certfile .* holds no certificate in PEM"):
        load((bad, key))
    with pytest.raises(ConfigError, match="cacertfile .* holds no certificate in PEM"):
        load({"certfile": cert, "keyfile": key, "cacertfile": bad})
    with pytest.raises(ConfigError, match="keyfile .* holds no private key in PEM"):
        load((cert, bad))


def test_an_encrypted_key_needs_its_password(authority: Authority) -> None:
    """Without one OpenSSL would ask on the terminal, and wait."""
    cert, key = authority.issue("localhost", password=b"mooring")
    with pytest.raises(ConfigError, match='keyfile .* is encrypted; give its password with "password"'):
        load((cert, key))
    with pytest.raises(ConfigError, match="keyfile .* cannot be opened with this password"):
        load({"certfile": cert, "keyfile": key, "password": "anchor"})
    assert load({"certfile": cert, "keyfile": key, "password": "mooring"}).context


def test_a_context_for_clients_is_refused() -> None:
    with pytest.raises(ConfigError, match="for clients; make one with ssl.SSLContext"):
        load(ssl.create_default_context())


# --- what is said ----------------------------------------------------------------------------------------------------


def test_an_expired_certificate_is_served_with_an_error_in_the_log(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A restart must not turn an old certificate into no service; it can be replaced while it is served."""
    cert, key = authority.issue("localhost", days=-1)
    load((cert, key))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert str(cert) in record.message and "clients refuse it now" in record.message


def test_a_key_that_everybody_can_read_is_worth_a_word(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = authority.issue("localhost")
    load((cert, key))
    assert not caplog.records
    key.chmod(0o644)
    load((cert, key))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"private key {key}" in caplog.text


def test_only_tls_1_2_and_1_3_with_good_ciphers_are_spoken(authority: Authority) -> None:
    context = load(authority.issue("localhost")).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    for cipher in context.get_ciphers():
        assert cipher["protocol"] == "TLSv1.3" or cipher["name"].startswith("ECDHE-"), cipher
        assert cipher["aead"], cipher


# --- served ----------------------------------------------------------------------------------------------------------


async def peer_of(port: int, context: ssl.SSLContext) -> Any:
    """The server's certificate, after a handshake that the server has agreed to."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        try:
            # In TLS 1.3 the client hears of a refusal only when it reads.
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            return writer.get_extra_info("peercert")["serialNumber"]
        finally:
            writer.transport.abort()


def serving(tls: Any) -> HttpServer:
    return HttpServer(Server("tls", version="1"), port=0, tls=tls)


async def test_a_changed_certificate_is_read_without_a_restart(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = authority.issue("localhost")
    new_cert, new_key = authority.issue("localhost")
    async with serving((cert, key)) as http:
        certificates: Any = http._carrier._tls  # type: ignore[attr-defined]
        before = await peer_of(http.port, authority.trust())
        certificates.refresh()
        assert await peer_of(http.port, authority.trust()) == before

        cert.write_bytes(new_cert.read_bytes())  # and its key is not there yet
        certificates.refresh()
        assert await peer_of(http.port, authority.trust()) == before
        assert "the previous certificate stays in use" in caplog.text

        key.write_bytes(new_key.read_bytes())
        certificates.refresh()
        assert await peer_of(http.port, authority.trust()) != before

        cert.unlink()
        certificates.refresh()
        assert await peer_of(http.port, authority.trust()) != before


@pytest.mark.parametrize("name", ["TLSv1_2", "TLSv1_3"])
async def test_client_certificates_are_demanded_where_an_authority_for_them_is_given(
    authority: Authority, name: str
) -> None:
    cert, key = authority.issue("localhost")
    client_cert, client_key = authority.issue("client")
    async with serving({"certfile": cert, "keyfile": key, "cacertfile": authority.file}) as http:
        known, unknown = authority.trust(), authority.trust()
        for context in (known, unknown):
            context.minimum_version = context.maximum_version = ssl.TLSVersion[name]
        known.load_cert_chain(client_cert, client_key)
        assert await peer_of(http.port, known)
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            await peer_of(http.port, unknown)
        assert http.engine.gauges().tls_failures == 1


async def test_a_context_of_ones_own_is_used_as_it_is(authority: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("localhost"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(context) as http:
        assert http.url.startswith("https://")
        assert await peer_of(http.port, authority.trust())
        modern = authority.trust()
        modern.minimum_version = ssl.TLSVersion.TLSv1_3
        with pytest.raises(ssl.SSLError):
            await peer_of(http.port, modern)
