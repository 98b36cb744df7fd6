"""TLS under our HTTP server: its certificates, and the encryption of one connection.

`Certificates` makes the `ssl.SSLContext` of a bind from files, reports faults in them at once, and reads them again when
they change. `TlsConnection` stands between a socket and the HTTP protocol: to asyncio it is a protocol, to the protocol
above it is the transport. OpenSSL works on two buffers in memory, so bytes wait only in the socket's transport. A TLS
connection behaves like a plain one: writers wait for a slow reader, a client may end its side and still be answered, and a
refusal arrives though the client still sends.

asyncio has TLS transports of its own. They cannot end one side alone, keep 256 KiB for every connection, and hide
connections whose handshake is not done from the server that must count and end them.

SNI with several certificates and OCSP are left out on purpose: a proxy does these better.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, cast, final

from trimaran.errors import ConfigError
from trimaran.server.handlers import logger

if TYPE_CHECKING:
    from .endpoints import Endpoints
    from .engine import Engine

_HANDSHAKE_SECONDS: Final = 10.0  # from the accept on: a client far away needs less than one
_HALF_CLOSED_SECONDS: Final = 1.0  # to finish an answer to a client that has ended its side
_PIECE: Final = 16 * 1024  # a TLS record; OpenSSL's buffers keep the size of the largest piece they ever held
_UNASKED_BYTES: Final = 64 * 1024  # of TLS's own messages to a client that does not read: a flood of key updates
# A record has 22 bytes of overhead. No real client sends one byte in each, which costs much time.
_OVERHEAD_RATIO: Final = 8
_OVERHEAD_BYTES: Final = 64 * 1024
_MANY_RECORDS: Final = 64
_CIPHERS: Final = "@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of TLS 1.3 are all good
_HANDSHAKE_RECORD: Final = b"\x16"
_PLAIN_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 45\r\nconnection: close\r\n\r\n"
    b"this port speaks TLS: use https:// in the URL"
)

_USAGE: Final = (
    'tls= takes ("cert.pem", "key.pem"), {"certfile": "cert.pem", "keyfile": "key.pem"} with "cacertfile" and "password" '
    "if needed, or an ssl.SSLContext for a server"
)
_KEYS: Final = ("certfile", "keyfile", "cacertfile", "password")
_REASONS: Final = {
    "KEY_VALUES_MISMATCH": "keyfile {keyfile!r} is not the key of the certificate in {certfile!r}",
    "EE_KEY_TOO_SMALL": "the key of the certificate in {certfile!r} is too short to be safe; make one of 2048 bits",
    "CA_MD_TOO_WEAK": "the certificate in {certfile!r} is signed with a hash that is not safe any more",
}

Stamp = tuple[tuple[int, int, int], ...]


@final
class Certificates:
    """The certificate of a TLS bind, and its rules for client certificates.

    Args:
        tls: (certificate, key), a mapping with certfile, keyfile, cacertfile, password, or a ready context.
        protocols: what is offered by ALPN, the best first.

    Raises:
        ConfigError: it cannot work.
    """

    def __init__(self, tls: Any, protocols: list[str]) -> None:
        self._protocols = protocols
        self._files: dict[str, str] = {}
        self._stamp: Stamp = ()
        if isinstance(tls, ssl.SSLContext):
            self.context: ssl.SSLContext = tls
        else:
            self._files, self._password = _read_options(tls)
            self._stamp = self._look()
            self.context = self._load()
            self._warn()
        self.context.set_alpn_protocols(protocols)
        try:
            self.context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
        except ssl.SSLError:
            raise ConfigError(
                "tls: this ssl.SSLContext is for clients; make one with ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)"
            ) from None

    def refresh(self) -> None:
        """Read the files again if they have changed. Files that cannot be used change nothing but the log."""
        if not self._files or (stamp := self._look()) == self._stamp:
            return
        self._stamp = stamp
        try:
            context = self._load()
        except ConfigError as error:
            logger.error("%s; the previous certificate stays in use", error)
            return
        context.set_alpn_protocols(self._protocols)
        self.context = context
        logger.info("the certificate in %s was read again", self._files["certfile"])
        self._warn()

    def _look(self) -> Stamp:
        stamps: list[tuple[int, int, int]] = []
        for path in self._files.values():
            try:
                about = Path(path).stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((about.st_mtime_ns, about.st_size, about.st_ino))
        return tuple(stamps)

    def _load(self) -> ssl.SSLContext:
        files = self._files
        for name, path in files.items():
            _check_file(name, path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_ciphers(_CIPHERS)
        try:
            context.load_cert_chain(files["certfile"], files["keyfile"], self._password or self._no_password)
        except ssl.SSLError as error:
            self._explain(error)
        if "cacertfile" in files:
            try:
                context.load_verify_locations(files["cacertfile"])
            except ssl.SSLError:
                raise ConfigError(f"tls: cacertfile {files['cacertfile']!r} holds no certificate in PEM") from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _no_password(self) -> NoReturn:
        # Without this, OpenSSL asks on the terminal, and waits.
        raise ConfigError(f'tls: keyfile {self._files["keyfile"]!r} is encrypted; give its password with "password"')

    def _explain(self, error: ssl.SSLError) -> NoReturn:
        """OpenSSL hardly says which file it means."""
        known = _REASONS.get(error.reason or "")
        if known is None:
            key = Path(self._files["keyfile"]).read_bytes()
            if not self._expiry():
                known = "certfile {certfile!r} holds no certificate in PEM"
            elif b"PRIVATE KEY-----" not in key:
                known = "keyfile {keyfile!r} holds no private key in PEM"
            elif b"ENCRYPTED" in key:
                known = "keyfile {keyfile!r} cannot be opened with this password"
            else:
                known = "certfile {certfile!r} and keyfile {keyfile!r} cannot be used: " + (error.reason or "unknown")
        raise ConfigError("tls: " + known.format(**self._files)) from None

    def _expiry(self) -> tuple[datetime.datetime, datetime.datetime] | None:
        """From when until when the certificate is good; None if there is none in the file."""
        from cryptography import x509

        try:
            certificate = x509.load_pem_x509_certificate(Path(self._files["certfile"]).read_bytes())
        except ValueError:
            return None
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc

    def _warn(self) -> None:
        """Warn of faults that do not prevent serving. An expired certificate can be replaced meanwhile."""
        good = self._expiry()
        now = datetime.datetime.now(datetime.UTC)
        if good is not None and not good[0] <= now <= good[1]:
            logger.error(
                "tls: the certificate in %s is good from %s to %s, and clients refuse it now; put another in its place, "
                "which is read without a restart",
                self._files["certfile"],
                *(f"{time:%Y-%m-%d %H:%M} UTC" for time in good),
            )
        if Path(self._files["keyfile"]).stat().st_mode & 0o004:
            logger.warning(
                "tls: every user of this machine can read the private key %s; chmod 600 keeps it private",
                self._files["keyfile"],
            )


def _read_options(tls: Any) -> tuple[dict[str, str], Any]:
    """The files by their role, and the key's password."""
    if isinstance(tls, (tuple, list)):
        pair = cast("tuple[Any, ...]", tls)
        tls = dict(zip(("certfile", "keyfile"), pair, strict=True)) if len(pair) == 2 else {}
    if not isinstance(tls, Mapping):
        raise ConfigError(f"{_USAGE}; not {type(tls).__name__}")
    options: dict[str, Any] = {name: value for name, value in cast("Any", tls).items() if value is not None}
    unknown = [name for name in options if name not in _KEYS]
    if unknown or "certfile" not in options or "keyfile" not in options:
        raise ConfigError(f"{_USAGE}" + (f"; {unknown[0]!r} is none of these" if unknown else ""))
    password = options.pop("password", None)
    return {name: str(options[name]) for name in _KEYS if name in options}, password


def _check_file(name: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except FileNotFoundError:
        raise ConfigError(f"tls: {name} {path!r} does not exist") from None
    except OSError as error:
        raise ConfigError(f"tls: {name} {path!r} cannot be read: {error.strerror}") from None


class TlsOwner(Protocol):
    """The server whose connections are encrypted."""

    connections: set[Any]
    now: float
    engine: Engine | Endpoints

    def converse(self, protocol: str | None) -> asyncio.Protocol:
        """The protocol class for the ALPN result."""
        ...


@final
class TlsConnection(asyncio.Protocol):
    """One encrypted connection: the handshake, then both directions."""

    __slots__ = (
        "_above",
        "_context",
        "_has_heard_end",
        "_incoming",
        "_is_over",
        "_is_paused",
        "_listener",
        "_outgoing",
        "_overhead",
        "_raw",
        "_since",
        "_ssl",
        "_unasked",
    )

    def __init__(self, listener: TlsOwner, context: ssl.SSLContext) -> None:
        self._listener = listener
        self._context = context
        self._since = listener.now
        self._raw: asyncio.Transport = cast("Any", None)
        self._ssl: ssl.SSLObject | None = None
        self._incoming: ssl.MemoryBIO = cast("Any", None)
        self._outgoing: ssl.MemoryBIO = cast("Any", None)
        self._above: asyncio.Protocol | None = None
        self._has_heard_end = False  # the client's close_notify
        self._is_over = False  # we have ended, or the handshake failed: further bytes are not decrypted
        self._is_paused = False
        self._unasked = 0
        self._overhead = 0  # bytes of records beyond their content

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        self._listener.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._ssl = None
        self._listener.connections.discard(self)
        above, self._above = self._above, None
        if above is not None:
            above.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            if self._above is not None:
                self._above.data_received(data)  # which drops it, and notes that it came
            return
        if self._ssl is None and not self._begin(data):
            return
        plain: list[bytes] = []
        try:
            view = memoryview(data)
            for start in range(0, len(data), _PIECE):
                self._incoming.write(view[start : start + _PIECE])
                if self._above is not None or self._shake_hands():
                    self._decrypt(plain)
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._outgoing.pending:
            self._send_unasked()
        if self._above is None:
            return
        text = plain[0] if len(plain) == 1 else b"".join(plain)
        self._overhead = max(0, self._overhead + len(data) - _OVERHEAD_RATIO * len(text))
        if self._overhead > _OVERHEAD_BYTES:
            self._note_failure("its records are larger than what they carry")
            self.abort()
            return
        if len(plain) > _MANY_RECORDS:
            # Let others have their turn: uvloop would read on from this one, some thirty times.
            self._raw.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)
        if text:
            self._above.data_received(text)
        if self._has_heard_end and not self._is_over:
            self._hear_end(self._above)

    def _read_on(self) -> None:
        if not self._raw.is_closing():
            self._raw.resume_reading()

    def _hear_end(self, above: asyncio.Protocol) -> None:
        """The client has sent close_notify. It may still listen; nearly always it is going, and waits for ours."""
        if above.eof_received():
            asyncio.get_running_loop().call_later(_HALF_CLOSED_SECONDS, self.close)
        else:
            self.close()

    def eof_received(self) -> bool:
        # An end without close_notify is an end all the same: HTTP itself says where a request ends.
        if self._above is None or self._is_over:
            return False
        return self._has_heard_end or bool(self._above.eof_received())

    def pause_writing(self) -> None:
        self._is_paused = True
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._unasked = 0
        if self._above is not None:
            self._above.resume_writing()

    # TLS

    def _begin(self, data: bytes) -> bool:
        """The first bytes: nothing is spent on a client before it says something."""
        if data[:1] != _HANDSHAKE_RECORD:
            self._refuse_plain(data)
            return False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        return True

    def _shake_hands(self) -> bool:
        """Go on with the handshake; True once it is done, and somebody is there to be spoken to."""
        assert self._ssl is not None
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._listener.connections.discard(self)
        self._above = self._listener.converse(self._ssl.selected_alpn_protocol())
        self._above.connection_made(cast("asyncio.Transport", self))
        return True

    def _decrypt(self, plain: list[bytes]) -> None:
        channel, incoming = self._ssl, self._incoming
        assert channel is not None
        try:
            while not self._has_heard_end:
                data = channel.read(_PIECE)
                if data:
                    plain.append(data)
                else:
                    self._has_heard_end = True
                if not incoming.pending and not channel.pending():
                    return
        except ssl.SSLWantReadError:
            pass

    def _send_unasked(self) -> None:
        """Send messages of TLS itself: tickets, answers to key updates."""
        data = self._outgoing.read()
        self._raw.write(data)
        if self._is_paused:
            self._unasked += len(data)
            if self._unasked > _UNASKED_BYTES:
                self._raw.abort()

    def _fail(self, error: ssl.SSLError) -> None:
        """Say goodbye with the alert that OpenSSL has written, and close."""
        self._note_failure(error.reason or str(error))
        self._is_over = True
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())
        self._raw.close()

    def _note_failure(self, why: str) -> None:
        """Count a failed handshake, and log it at DEBUG: scanners cause many."""
        self._listener.engine.tls_failures += 1
        logger.debug("TLS with %s failed: %s", self._raw.get_extra_info("peername"), why)

    def _refuse_plain(self, data: bytes) -> None:
        """The client does not use TLS. If it speaks HTTP, answer with an explanation."""
        self._is_over = True
        if not data[:1].isalpha():
            self._note_failure("it does not begin with a handshake")
            self._raw.close()
            return
        self._note_failure("it is plain HTTP")
        self._raw.write(_PLAIN_REFUSAL)
        self._raw.write_eof()  # further bytes are dropped until the client ends or time is up

    # The transport of the protocol above

    def write(self, data: bytes | bytearray) -> None:
        channel = self._ssl
        if channel is None or self._is_over:
            return
        size = len(data)
        try:
            if size <= _PIECE:
                channel.write(data)
            else:
                view = memoryview(data)
                sent = 0
                while sent < size:
                    sent += channel.write(view[sent : sent + _PIECE])
                    self._raw.write(self._outgoing.read())
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def _end(self) -> None:
        """Send our close_notify, behind everything else."""
        if self._is_over or self._ssl is None:
            return
        self._is_over = True
        # Nearly always an error: the client has not sent its own yet, and we do not wait for it.
        with contextlib.suppress(ssl.SSLError):
            self._ssl.unwrap()
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._end()
        self._raw.write_eof()

    def close(self) -> None:
        self._end()
        self._raw.close()

    def abort(self) -> None:
        self._is_over = True
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._ssl if name == "ssl_object" else self._raw.get_extra_info(name, default)

    # The server's side, until the handshake is done

    def check_time(self, now: float) -> None:
        if now - self._since > _HANDSHAKE_SECONDS:
            if not self._is_over:
                self._note_failure("the handshake took too long")
            self._raw.abort()

    def end_soon(self) -> None:
        self._raw.abort()
