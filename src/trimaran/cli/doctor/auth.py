"""Examine a server that wants credentials: can a client find out where to get them?

The challenge, the protected-resource metadata, and the metadata of the authorization server it names. Addresses that the
server hands out are fetched only over https or from this machine, without the person's own headers, and never followed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from trimaran.transports.guard import is_loopback
from trimaran.types import as_object

from ..show import in_one_line
from .report import Report
from .wire import Answer, Unanswered, Wire

__all__ = ["authorization_server_urls", "challenge_params", "examine_authorization", "resource_metadata_urls"]


def challenge_params(header: str) -> dict[str, str]:
    """The parameters of a Bearer challenge; empty if there is none. `scheme` is the scheme as written."""
    found = re.search(r"\b(Bearer|DPoP)\b(.*)", header, re.IGNORECASE | re.DOTALL)
    if found is None:
        return {}
    pairs = re.findall(r'([A-Za-z_][\w-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))', found[2])
    return {"scheme": found[1], **{name.lower(): quoted or plain for name, quoted, plain in pairs}}


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


async def examine_authorization(report: Report, wire: Wire, url: str, refused: Answer, *, has_token: bool) -> None:
    """Report on the answer to a request without, or with the wrong, credentials, and on what it points to."""
    report.section("Authorization")
    if has_token:
        report.fail(
            "token",
            "token",
            f"refused with HTTP {refused.status}: {in_one_line(refused.headers.get('www-authenticate', 'no reason given'))}",
            "The rest cannot be examined without one that is good.",
            "Get a new token for exactly this server: it is checked for expiry, audience and scope.",
        )
    else:
        report.ok("authorization", "authorization", f"needed: HTTP {refused.status} without a token")
        report.skip(
            "token", "token", f"to examine the rest run trimaran auth login {url}, or pass one with --bearer TOKEN"
        )
    challenge = challenge_params(refused.headers.get("www-authenticate", ""))
    _report_challenge(report, refused, challenge)
    metadata = await _report_resource(report, wire, url, challenge.get("resource_metadata"))
    servers = metadata.get("authorization_servers") if metadata else None
    if isinstance(servers, list) and servers and isinstance(servers[0], str):
        await _report_server(report, wire, servers[0])


def _report_challenge(report: Report, refused: Answer, challenge: dict[str, str]) -> None:
    if not challenge:
        report.fail(
            "challenge",
            "WWW-Authenticate",
            in_one_line(refused.headers.get("www-authenticate") or "missing"),
            "A client learns from it how to log in; without it people see a bare 401.",
            'Answer 401 with WWW-Authenticate: Bearer resource_metadata="https://...".',
        )
    elif "resource_metadata" not in challenge:
        report.warn(
            "challenge",
            "WWW-Authenticate",
            f"{challenge['scheme']}, without resource_metadata",
            "Clients have to guess where the metadata is, and some do not.",
            'Add resource_metadata="https://.../.well-known/oauth-protected-resource...".',
        )
    else:
        report.ok(
            "challenge", "WWW-Authenticate", f"{challenge['scheme']}, {in_one_line(challenge['resource_metadata'])}"
        )


async def _fetch(wire: Wire, urls: Sequence[str]) -> tuple[str, dict[str, Any] | None, list[str]]:
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
            tried.append(f"{in_one_line(url)}: {in_one_line(str(error), 80)}")
            continue
        if answer.status == 200:
            try:
                found = as_object(json.loads(answer.body))
            except (ValueError, RecursionError):
                found = None
            if found is not None:
                return url, found, tried
        tried.append(f"{in_one_line(url)}: {answer.describe()}")
    return "", None, tried


async def _report_resource(report: Report, wire: Wire, url: str, challenged: str | None) -> dict[str, Any] | None:
    where, metadata, tried = await _fetch(wire, resource_metadata_urls(url, challenged))
    if metadata is None:
        report.fail(
            "resource-metadata",
            "resource metadata",
            "found nowhere",
            "Without it no client can find out where to log in.",
            "Publish RFC 9728 metadata at the first of these addresses.",
            details=tried,
        )
        return None
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
            "resource metadata",
            f"{in_one_line(where)} is not usable",
            "Clients must refuse metadata that is not about the server they asked.",
            "Set resource to the URL of the endpoint and name at least one authorization server.",
            details=faults,
        )
    else:
        report.ok("resource-metadata", "resource metadata", in_one_line(where))
    return metadata


def _covers(resource: str, url: str) -> bool:
    """Is the resource this very URL, or a path above it on the same host?"""
    own, asked = urlsplit(resource), urlsplit(url)
    if (own.scheme.lower(), own.netloc.lower()) != (asked.scheme.lower(), asked.netloc.lower()):
        return False
    path = own.path.rstrip("/")
    return asked.path.rstrip("/") == path or asked.path.startswith(f"{path}/")


async def _report_server(report: Report, wire: Wire, issuer: str) -> None:
    _, metadata, tried = await _fetch(wire, authorization_server_urls(issuer))
    if metadata is None:
        report.fail(
            "authorization-server",
            "authorization server",
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
            "authorization server",
            f"{in_one_line(issuer)} is not usable",
            "Clients must check these before they send anybody there.",
            "Mend the metadata of the authorization server.",
            details=faults,
        )
        return
    if metadata.get("client_id_metadata_document_supported") is True:
        ways = "client id metadata documents"
    elif metadata.get("registration_endpoint"):
        ways = "dynamic registration"
    else:
        ways = "clients registered beforehand only"
    report.ok("authorization-server", "authorization server", f"{in_one_line(issuer)}, takes {ways}")
