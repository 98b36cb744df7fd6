"""Examine a server that requires credentials: where a client gets them, or what a person must pass.

A server that takes API keys, passwords or tokens of its own has no OAuth, and need not have: that is said, and is no
fault. Where OAuth is announced, or found, it is examined: the challenge, the protected-resource metadata, and the
metadata of the authorization server it names. Addresses that the server hands out are fetched only over https or from
this machine, without the person's own headers, and never followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from trimaran.depth import decode_json
from trimaran.oauth.challenges import Challenge, challenge_for, key_header, parse_www_authenticate
from trimaran.transports.guard import is_loopback
from trimaran.types import as_object

from ..credentials import carries_credentials, how_to_pass, offers_login
from ..output import in_one_line
from .report import Report
from .wire import ProbeConnection, ProbeReply, Unanswered, modern_request

_CHECKED: Final = ": a token is checked for expiry, audience and scope"


def resource_metadata_urls(url: str, challenged: str | None) -> list[str]:
    """Where the metadata of a protected resource may be: as the challenge says, then by path, then at the root."""
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
    path = parts.path.rstrip("/")
    return list(dict.fromkeys([*([challenged] if challenged else []), base + path, base]))


def authorization_server_urls(issuer: str) -> list[str]:
    """Where the metadata of an authorization server may be, in the order of the specification."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [f"{origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return [*urls, f"{origin}{path}/.well-known/openid-configuration"] if path else urls


async def examine_authorization(report: Report, wire: ProbeConnection, url: str, refused: ProbeReply) -> None:
    """Report on the answer to a request without, or with the wrong, credentials, and on what it points to."""
    report.section("Authorization")
    challenge = refused.headers.get("www-authenticate", "")
    challenges = parse_www_authenticate(challenge)
    _report_refusal(report, url, refused, is_given=carries_credentials(wire.headers, challenges))
    token = challenge_for(challenges, "bearer", "dpop")
    named = token.parameters.get("resource_metadata") if token is not None else None
    where, metadata, tried = await _fetch(wire, resource_metadata_urls(url, named))
    if metadata is None and named is None and challenges:
        _report_without_oauth(report, challenges)
        return
    _report_challenge(report, challenge, token)
    _report_resource(report, url, named, where, metadata, tried)
    servers = metadata.get("authorization_servers") if metadata else None
    if isinstance(servers, list) and servers and isinstance(servers[0], str):
        await _report_server(report, wire, servers[0])


async def report_admission(report: Report, wire: ProbeConnection, url: str) -> None:
    """Report on a server that accepted us: whether it asks for the credentials that were passed."""
    if not wire.headers:  # a header of any name may hold a key
        report.skip("authorization", "the server asks for no credentials")
        return
    try:
        answer = await wire.post_bare(url, modern_request("server/discover"))
    except Unanswered as error:
        report.skip("authorization", f"a request without credentials got no answer: {error}")
        return
    if answer.status not in (401, 403):
        report.skip("authorization", "the server asks for no credentials; it did not need yours")
        return
    challenge = in_one_line(answer.headers.get("www-authenticate") or "no challenge")
    report.ok("authorization", f"needed, and yours are good: HTTP {answer.status} without ({challenge})")


def _report_refusal(report: Report, url: str, refused: ProbeReply, *, is_given: bool) -> None:
    challenge = refused.headers.get("www-authenticate", "")
    if is_given:
        report.fail(
            "token",
            f"refused with HTTP {refused.status}: {in_one_line(challenge or 'no reason given')}",
            "The rest cannot be examined without good ones.",
            f"Get new ones for this server{_CHECKED if offers_login(challenge) else ''}. "
            f"Then {', or '.join(how_to_pass(challenge, url))}.",
        )
        return
    report.ok("authorization", f"needed: HTTP {refused.status} without credentials")
    report.skip("token", f"to examine the rest {', or '.join(how_to_pass(challenge, url))}")


def _report_without_oauth(report: Report, challenges: Sequence[Challenge]) -> None:
    """The server takes credentials that people pass by hand: no client can log in, and none is invited to."""
    schemes = ", ".join(_describe(challenge) for challenge in challenges)
    if any(challenge.scheme in ("bearer", "dpop") for challenge in challenges):
        report.warn(
            "challenge",
            f"{schemes}, without resource_metadata",
            "No client can find out where to get a token: people have to pass one by hand.",
            "That is fine for tokens that you give out yourself. For logins, publish RFC 9728 metadata and name it here.",
        )
    else:
        report.ok("challenge", schemes)
    report.skip("resource-metadata", "the server has no OAuth")


def _describe(challenge: Challenge) -> str:
    header = key_header(challenge)
    if header is not None:
        return f"an API key in the header {header}"
    return {"basic": "user and password (Basic)", "bearer": "a token (Bearer)", "dpop": "a bound token (DPoP)"}.get(
        challenge.scheme, in_one_line(challenge.scheme)
    )


def _report_challenge(report: Report, header: str, challenge: Challenge | None) -> None:
    if challenge is None:
        report.fail(
            "challenge",
            in_one_line(header or "missing"),
            "A client learns from it how to log in; without it people see a bare 401.",
            'Answer 401 with WWW-Authenticate: Bearer resource_metadata="https://...".',
        )
        return
    scheme = "DPoP" if challenge.scheme == "dpop" else "Bearer"
    url = challenge.parameters.get("resource_metadata")
    if url is None:
        report.warn(
            "challenge",
            f"{scheme}, without resource_metadata",
            "Clients have to guess where the metadata is, and some do not.",
            'Add resource_metadata="https://.../.well-known/oauth-protected-resource...".',
        )
    else:
        report.ok("challenge", f"{scheme}, {in_one_line(url)}")


async def _fetch(wire: ProbeConnection, urls: Sequence[str]) -> tuple[str, dict[str, Any] | None, list[str]]:
    """The first of these that is a JSON object; and what the others gave."""
    tried: list[str] = []
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            tried.append(f"{in_one_line(url)}: not https, not fetched")
            continue
        try:
            answer = await wire.send("GET", url, {"Accept": "application/json"}, bare=True)
        except Unanswered as error:
            tried.append(f"{in_one_line(url)}: {in_one_line(str(error), 1000)}")
            continue
        if answer.status == 200:
            try:
                document = as_object(decode_json(answer.body))
            except ValueError:
                document = None
            if document is not None:
                return url, document, tried
        tried.append(f"{in_one_line(url)}: {answer.describe()}")
    return "", None, tried


def _report_resource(
    report: Report, url: str, challenged: str | None, where: str, metadata: dict[str, Any] | None, tried: list[str]
) -> None:
    if metadata is None:
        report.fail(
            "resource-metadata",
            "found nowhere",
            "Without it no client can find out where to log in.",
            "Publish RFC 9728 metadata at the first of these addresses.",
            details=tried,
        )
        return
    faults: list[str] = []
    resource = metadata.get("resource")
    if not isinstance(resource, str) or not _covers(resource, url):
        faults.append(f"resource is {in_one_line(str(resource), 80)!r}, which is not {url}")
    listed: Any = metadata.get("authorization_servers")
    if not isinstance(listed, list) or not listed:
        faults.append("authorization_servers is missing or empty")
    if challenged is not None and where != challenged:
        faults.append(f"it is not at {in_one_line(challenged)}, where the challenge says")
    if faults:
        report.fail(
            "resource-metadata",
            f"{in_one_line(where)} is not usable",
            "Clients must refuse metadata that is not about the server they asked.",
            "Set resource to the URL of the endpoint and name at least one authorization server.",
            details=faults,
        )
    else:
        report.ok("resource-metadata", in_one_line(where))


def _covers(resource: str, url: str) -> bool:
    """True if the resource is this URL, or a path above it on the same host."""
    own, requested = urlsplit(resource), urlsplit(url)
    if (own.scheme.lower(), own.netloc.lower()) != (requested.scheme.lower(), requested.netloc.lower()):
        return False
    path = own.path.rstrip("/")
    return requested.path.rstrip("/") == path or requested.path.startswith(f"{path}/")


async def _report_server(report: Report, wire: ProbeConnection, issuer: str) -> None:
    _, metadata, tried = await _fetch(wire, authorization_server_urls(issuer))
    if metadata is None:
        report.fail(
            "authorization-server",
            f"{in_one_line(issuer)} publishes no metadata",
            "Clients need it to find the login page and the token endpoint.",
            "Publish RFC 8414 or OpenID metadata at one of these addresses.",
            details=tried,
        )
        return
    faults: list[str] = []
    if metadata.get("issuer") != issuer:
        faults.append(
            f"issuer is {in_one_line(str(metadata.get('issuer')), 80)!r}, which is not {issuer!r} to the letter"
        )
    methods: Any = metadata.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in cast("list[Any]", methods):
        faults.append("code_challenge_methods_supported does not list S256")
    faults += [f"{key} is missing" for key in ("authorization_endpoint", "token_endpoint") if not metadata.get(key)]
    if faults:
        report.fail(
            "authorization-server",
            f"{in_one_line(issuer)} is not usable",
            "Clients must check these before they send anybody there.",
            "Fix the metadata of the authorization server.",
            details=faults,
        )
        return
    if metadata.get("client_id_metadata_document_supported") is True:
        ways = "client id metadata documents"
    elif metadata.get("registration_endpoint"):
        ways = "dynamic registration"
    else:
        ways = "clients registered beforehand only"
    report.ok("authorization-server", f"{in_one_line(issuer)}, takes {ways}")
