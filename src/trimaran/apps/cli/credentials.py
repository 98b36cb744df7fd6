"""The challenges of a server that requires credentials, as options of the command line.

One place for every command. `exits` says it after a 401, and the doctor says it in its report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trimaran.oauth.challenges import USUAL_KEY_HEADER, Challenge, key_header, parse_www_authenticate


def how_to_pass(www_authenticate: str, target: str) -> list[str]:
    """The ways to pass what a 401 asks for, best first, each to stand after "or": "run ...", "pass ..."."""
    ways: list[str] = []
    for challenge in parse_www_authenticate(www_authenticate):
        header = key_header(challenge)
        if header is not None:
            ways.append(f"pass --header {header}=KEY, with your API key for KEY")
        elif challenge.scheme == "basic":
            ways.append('pass --header "Authorization=Basic $(printf USER:PASSWORD | base64)"')
        elif challenge.scheme in ("bearer", "dpop"):
            if "resource_metadata" in challenge.parameters:
                ways.append(f"run trimaran auth login {target}")
            if challenge.scheme == "bearer":
                ways.append("pass a token with --bearer TOKEN, or in TRIMARAN_TOKEN")
    if not ways:
        ways = [f"run trimaran auth login {target}", "pass a token with --bearer TOKEN, or in TRIMARAN_TOKEN"]
    return list(dict.fromkeys(ways))


def offers_login(www_authenticate: str) -> bool:
    """True if the server may offer OAuth; a server whose challenges name only other schemes does not."""
    challenges = parse_www_authenticate(www_authenticate)
    return not challenges or any(challenge.scheme in ("bearer", "dpop") for challenge in challenges)


def carries_credentials(headers: Mapping[str, str], challenges: Iterable[Challenge]) -> bool:
    """Whether these headers hold credentials, valid or not, of a kind that the server asks for."""
    key_headers = {header.lower() for challenge in challenges if (header := key_header(challenge)) is not None}
    names = {"authorization"} | (key_headers or {USUAL_KEY_HEADER.lower()})
    return not names.isdisjoint(name.lower() for name in headers)
