"""Every reader of bytes from outside, as a function for a fuzzer: it takes any bytes, and raises only if a promise is broken.

The promises: nothing but the documented exception comes out; how a stream is cut changes nothing; a short text takes
a short time. `make fuzz` looks for bytes that break one, guided by coverage (atheris); `test_corpus.py` runs the corpus, the
bytes that reach every branch found so far, through the same functions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from trimaran import Server
from trimaran.auth import Refused
from trimaran.auth.extract import extract_api_key, extract_basic_auth, extract_bearer_token
from trimaran.auth.jwt_keys import FixedKeys, import_secret, read_signed
from trimaran.depth import MAX_DEPTH, TooDeep, check_depth, decode_json
from trimaran.errors import DeclarationError, Error, ProtocolError, RemoteProtocolError, StateRejected
from trimaran.ext.skills.frontmatter import Unreadable, read_frontmatter
from trimaran.host.config.jsontext import lines_of as json_lines
from trimaran.host.config.jsontext import read_json
from trimaran.host.config.model import ConfigUnusable
from trimaran.host.config.tomltext import lines_of as toml_lines
from trimaran.host.config.tomltext import read_toml
from trimaran.host.config.yamltext import read_yaml
from trimaran.host.trust.scan import clean_text, scan_text
from trimaran.host.trust.shadowing import scan_names
from trimaran.oauth.challenges import parse_www_authenticate
from trimaran.openapi.yamltext import parse_yaml
from trimaran.protocol.headers import decode_value, encode_value, routing_name_matches
from trimaran.protocol.http1_framing import Head, RequestReader, ResponseHead, ResponseReader
from trimaran.protocol.inbound import IncomingCall, MessageReader
from trimaran.protocol.journal import read_journal
from trimaran.protocol.json_lines import LineReader
from trimaran.protocol.read_reply import id_of_malformed, read_frame, split_batch
from trimaran.protocol.seal import Sealer
from trimaran.protocol.sse import SSEParser
from trimaran.protocol.uritemplate import UriTemplate
from trimaran.schema import Validator
from trimaran.transports.engine import judge_accept
from trimaran.transports.guard import Guard
from trimaran.types import Tool

Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}
MAX_SECONDS: Final = 2.0  # for some KB of input: what takes longer would take minutes for some MB


def target(name: str) -> Callable[[Target], Target]:
    def register(function: Target) -> Target:
        def timed(data: bytes) -> None:
            began = time.process_time()
            function(data)
            seconds = time.process_time() - began
            assert seconds < MAX_SECONDS, f"{len(data)} bytes took {seconds:.1f} s"

        TARGETS[name] = timed
        return timed

    return register


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def by_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# --- HTTP ------------------------------------------------------------------------------------------------------------

LIMITS: Final = {"max_head": 4096, "max_body": 4096}


def describe(head: Head) -> dict[str, Any]:
    return {name: getattr(head, name) for name in Head.__slots__ if name != "expects_continue"}


def read_requests(pieces: list[bytes]) -> tuple[list[Any], int]:
    """The requests, and the status of the refusal behind them, or 0."""
    reader = RequestReader(**LIMITS)
    try:
        for piece in pieces:
            reader.feed(piece)
    except ProtocolError as error:
        assert error.status in (400, 413, 431, 501, 505), error.status
        return [(describe(head), body) for head, body in reader.requests], error.status
    finally:
        reader.close()
    return [(describe(head), body) for head, body in reader.requests], 0


@target("http-requests")
def http_requests(data: bytes) -> None:
    whole, whole_status = read_requests([data])
    cut, cut_status = read_requests(by_bytes(data))
    assert whole == cut, (whole, cut)
    # Where the limit of a head is met may depend on the cuts, that it is met may not. Empty lines behind a request are
    # counted only where a read begins with them: within one read the parser skips them, and a read is bounded.
    if b"\n\r\n\r\n" not in data and b"\n\n" not in data.replace(b"\r", b"").replace(b"\n\n", b"\n", 1):
        assert bool(whole_status) == bool(cut_status), (whole_status, cut_status)


KNOWN: Final = [
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nMcp-Name: a\r\nX-Id: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nMcp-Name: b\r\nX-Id: 22\r\nContent-Length: 3\r\n\r\n[1]",
]


@target("http-heads-like-the-last")
def http_known_heads(data: bytes) -> None:
    """The data are the values of a head that has been seen, or a whole request."""
    values = data.split(b"\n", 2)
    streams = [data]
    if len(values) == 3:
        start = KNOWN[0].partition(b"a\r\n")[0]
        streams.append(start + values[0] + b"\r\nX-Id: " + values[1] + b"\r\nContent-Length: " + values[2])
    for stream in streams:
        reader = RequestReader(**LIMITS)
        with contextlib.closing(reader):
            for known in KNOWN:
                reader.feed(known)
                reader.requests.clear()
            assert reader.known is not None
            request = reader.known.read(stream)
        if request is not None:
            head, body, headers = request
            head.headers, head.length = headers, len(body)
            assert read_requests([stream]) == ([(describe(head), body)], 0), stream


@target("http-responses")
def http_responses(data: bytes) -> None:
    whole, by_byte = read_response([data]), read_response(by_bytes(data))
    # An error in a body leaves no body; how much of it came before depends on the cuts.
    assert whole == by_byte, (whole, by_byte)
    if whole is not None and whole[0] is not None:
        head = whole[0]
        assert 200 <= head.status <= 999
        assert all(name == name.lower() for name in head.headers)
        assert not head.is_chunked or head.length is None


def read_response(parts: list[bytes]) -> tuple[ResponseHead | None, bytes, bool] | None:
    """The head, the body and whether it has ended; None if it is malformed."""
    reader = ResponseReader(max_head=65_536, max_interim=100)
    content = b""
    try:
        for part in parts:
            if reader.is_done:
                break
            content += b"".join(reader.feed(part))
    except RemoteProtocolError:
        return None
    finally:
        reader.close()
    return reader.head, content, reader.is_done


# --- messages --------------------------------------------------------------------------------------------------------


def make_readers() -> list[MessageReader]:
    server = Server("fuzz", version="1")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.resource("memo://{name}")
    async def memo(name: str) -> str:
        return name

    return [server.runtime.dispatcher.reader(legacy=True), server.runtime.dispatcher.reader(legacy=False)]


READERS: Final = make_readers()
CODES: Final = {-32700, -32600, -32601, -32602, -32020, -32021, -32022}


def read_message(body: bytes, headers: dict[str, str] | None) -> None:
    for reader in READERS:
        try:
            message = reader.read(body, headers)
            if isinstance(message, IncomingCall):
                assert isinstance(message.meta, dict)
        except ProtocolError as error:
            assert error.code in CODES, error
            assert error.status in (400, 404), error.status
            json.dumps([error.message, error.data]).encode()
            assert error.request_id is None or type(error.request_id) in (int, str)


@target("messages")
def messages(data: bytes) -> None:
    """What a client sends: a body, and behind a line of headers one over HTTP."""
    read_message(data, None)
    fields, separator, body = data.partition(b"\n\n")
    if separator:
        pairs = [line.partition(":") for line in fields.decode("latin-1").split("\n")]
        read_message(body, {name.lower(): value.strip() for name, _, value in pairs})


@target("frames")
def frames(data: bytes) -> None:
    """What a server sends."""
    with contextlib.suppress(RemoteProtocolError):
        for message in split_batch(data):
            with contextlib.suppress(RemoteProtocolError):
                frame = read_frame(message)
                frame.failure()
                if frame.is_call or frame.is_notice:
                    frame.read_params()
    assert type(id_of_malformed(data)) in (int, str, type(None))


@target("json")
def json_text(data: bytes) -> None:
    """The limits are kept, and what passes them msgspec reads or refuses."""
    try:
        check_depth(data)
    except TooDeep:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(data)
            assert depth_of(value) > MAX_DEPTH or len(data) > 12_000
        return
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        assert depth_of(decode_json(data)) <= MAX_DEPTH


def depth_of(value: Any) -> int:
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


@target("sse")
def sse(data: bytes) -> None:
    outcomes: list[Any] = []
    for pieces in ([data], by_bytes(data)):
        parser = SSEParser(1000)
        events: list[Any] = []
        try:
            for piece in pieces:
                events += parser.feed(piece)
            parser.close()
            outcomes.append(events)
        except RemoteProtocolError:
            outcomes.append("too large")
    assert outcomes[0] == outcomes[1], outcomes


@target("lines")
def lines(data: bytes) -> None:
    outcomes: list[Any] = []
    for pieces in ([data], by_bytes(data)):
        reader = LineReader(50)
        found: list[Any] = []
        for piece in pieces:
            found += reader.feed(piece)
        outcomes.append([line if isinstance(line, bytes) else "too long" for line in [*found, reader.close()] if line])
    assert outcomes[0] == outcomes[1], outcomes


VARIABLE: Final = re.compile(r"[A-Za-z0-9_.%]+(?=[*,:}])")


@target("uri-templates")
def uri_templates(data: bytes) -> None:
    """A template, and behind a line break a URI."""
    text, _, uri = text_of(data).partition("\n")
    try:
        template = UriTemplate(text)
    except Error:
        return
    values = template.match(uri)
    # A variable that stands there twice may be missing in one place, and then the URI is no expansion.
    if values is not None and len(VARIABLE.findall(text)) == len(values):
        assert template.match(template.expand(values)) is not None, (text, uri, values)


# --- headers and tokens ----------------------------------------------------------------------------------------------

GUARDS: Final = [Guard("127.0.0.1"), Guard("0.0.0.0", allowed_origins=["https://app.example.com"])]


@target("headers")
def headers(data: bytes) -> None:
    text = data.decode("latin-1")
    with contextlib.suppress(ProtocolError):
        value = decode_value(text)
        assert decode_value(encode_value(value)) == value
    routing_name_matches(text, "add")
    judge_accept(text)
    for challenge in parse_www_authenticate(text):
        assert challenge.scheme
    for guard in GUARDS:
        with contextlib.suppress(ProtocolError):
            guard.admit(text, "127.0.0.1")
        with contextlib.suppress(ProtocolError):
            guard.admit(None, text)
        guard.preflight([("access-control-allow-headers", "")], text)
    for extract in (extract_bearer_token, extract_basic_auth):
        with contextlib.suppress(Refused):
            extract({"Authorization": text})
    with contextlib.suppress(Refused):
        extract_api_key({"X-API-Key": text})


SECRET: Final = "0123456789abcdef0123456789abcdef"
KEYS: Final = FixedKeys((import_secret(SECRET),), by_kid=False)
SEALER: Final = Sealer([b"0" * 32], random=bytes)


@target("tokens")
def tokens(data: bytes) -> None:
    """Nobody can sign or seal without the key, so nothing opens."""
    text = text_of(data)
    with contextlib.suppress(Refused):
        claims = asyncio.run(read_signed(text, KEYS, frozenset({"HS256"})))
        raise AssertionError(f"a token nobody signed was taken: {claims}")
    with contextlib.suppress(StateRejected):
        SEALER.open(text, purpose=b"p", binding=b"b", now=0.0)
        raise AssertionError("a state nobody sealed was opened")
    with contextlib.suppress(StateRejected):
        read_journal(data)


# --- files -----------------------------------------------------------------------------------------------------------


@target("toml")
def toml(data: bytes) -> None:
    text = text_of(data)
    with contextlib.suppress(ConfigUnusable):
        content = read_toml(text, "mcp.toml")
        assert isinstance(content, dict)
        toml_lines(text)


@target("json-files")
def json_files(data: bytes) -> None:
    text = text_of(data)
    with contextlib.suppress(ConfigUnusable):
        read_json(text, "mcp.json")
        json_lines(text, ("mcpServers",), "mcp.json")


@target("yaml")
def yaml(data: bytes) -> None:
    text = text_of(data)
    with contextlib.suppress(ConfigUnusable):
        json.dumps(read_yaml(text, "config.yaml"), allow_nan=False)
    with contextlib.suppress(Unreadable):
        json.dumps(read_frontmatter(text).values, allow_nan=False)
    with contextlib.suppress(ValueError):
        assert len(str(parse_yaml(data))) < 100_000_000


@target("schemas")
def schemas(data: bytes) -> None:
    """A server's schema: compiled or refused, and a value is checked in time."""
    try:
        schema = decode_json(data)
    except ValueError:
        return
    if not isinstance(schema, dict):
        return
    try:
        validator = Validator(schema)
    except DeclarationError:
        return
    for value in ({"a": ["x" * 100, 1, None]}, schema):
        validator.is_valid(value)
        validator.first(value)


@target("words")
def words(data: bytes) -> None:
    """What a server says to a model: looked at in time, and clean text stays as it is."""
    text = text_of(data)
    for place in ("tool", "result", "arguments"):
        scan_text(text, place)
    clean = clean_text(text)
    assert clean_text(clean) == clean
    tool = Tool(name="read", description=text, input_schema={})
    list(scan_names("docs", {"read": tool}, [("files", "read_file")]))
