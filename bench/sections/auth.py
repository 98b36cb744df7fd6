"""What it costs to know who is calling: tools/call over HTTP without authentication, with tokens, keys and proofs.

A token is verified once and then known until it expires (or five minutes have passed): measured is a call after the first.
"""

import base64
import dataclasses
import functools
import hashlib
import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

import contenders as who
from contenders import Contender
from plan import CONNECTIONS, Live, Plan, call_rate, rounds, serve_all
from procs import UnavailableError
from report import Row, Section, Series, compare, limit

ISSUER = "https://login.example.com"
AUDIENCE = "https://bench.example.com/mcp"
SCOPE = "bench"
BUDGET_US = 15
KINDS = {
    "hs256": "Bearer JWT, HS256",
    "rs256": "Bearer JWT, RS256",
    "resource": "OAuth resource server, RS256",
    "apikey": "API key",
    "dpop": "DPoP proof, ES256",
}
RIVALS = (who.SDK, who.FASTMCP)


@dataclasses.dataclass(frozen=True)
class Credentials:
    """Keys made for this run, and tokens signed with them."""

    facts: Mapping[str, Any]
    """For the servers."""
    proof_key: Any
    bound_token: str

    @classmethod
    def make(cls) -> "Credentials":
        from joserfc import jwt
        from joserfc.jwk import ECKey, OctKey, RSAKey

        secret = secrets.token_urlsafe(48)
        signing, proof_key = RSAKey.generate_key(2048), ECKey.generate_key("P-256")
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "sub": "bench",
            "aud": AUDIENCE,
            "client_id": "bench-client",
            "scope": f"{SCOPE} other",
            "iat": now,
            "exp": now + 3600,
        }
        bound = {**claims, "cnf": {"jkt": proof_key.thumbprint()}}
        tokens = {
            "hs256": jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(secret)),
            "rs256": jwt.encode({"alg": "RS256", "kid": "bench"}, claims, signing),
        }
        facts = {
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "scope": SCOPE,
            "secret": secret,
            "public_key": signing.as_pem(private=False).decode(),
            "api_key": secrets.token_urlsafe(32),
            "tokens": tokens,
        }
        return cls(facts, proof_key, jwt.encode({"alg": "RS256", "kid": "bench"}, bound, signing))

    @property
    def environment(self) -> dict[str, str]:
        return {"BENCH_AUTH": json.dumps(self.facts)}

    def headers(self, kind: str) -> dict[str, str]:
        if kind == "none":
            return {}
        if kind == "apikey":
            return {"X-API-Key": self.facts["api_key"]}
        if kind == "dpop":
            return {"Authorization": f"DPoP {self.bound_token}", "DPoP": self._proof(AUDIENCE)}
        return {"Authorization": f"Bearer {self.facts['tokens']['hs256' if kind == 'hs256' else 'rs256']}"}

    def _proof(self, url: str) -> str:
        from joserfc import jwt

        digest = hashlib.sha256(self.bound_token.encode()).digest()
        claims = {
            "jti": secrets.token_hex(8),
            "htm": "POST",
            "htu": url,
            "iat": int(time.time()),
            "ath": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        }
        header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": self.proof_key.as_dict(private=False)}
        return jwt.encode(header, claims, self.proof_key)


def run(plan: Plan) -> Section:
    section = Section("auth", f"Knowing who calls: HTTP tools/call, modern, 1 worker, {CONNECTIONS} connections")
    credentials = Credentials.make()
    contenders = [_with(who.OURS, kind, label, credentials) for kind, label in {"none": "no auth", **KINDS}.items()]
    contenders += [
        _with(rival, kind, f"{rival.label}, {KINDS.get(kind, 'no auth')}", credentials)
        for rival in RIVALS
        for kind in ("none", "rs256")
    ]
    costs: dict[str, list[float]] = {one.key: [] for one in contenders}
    with serve_all(contenders, plan) as live:
        measures = {one.key: (one.label, _measure(live[one.key], one, plan, credentials, costs)) for one in contenders}
        rates = rounds(plan.rounds, measures)
    cpu = {key: Series(rates[key].label, values, rates[key].failure) for key, values in costs.items()}
    wall = {key: Series(one.label, [1e6 / value for value in one.values], one.failure) for key, one in rates.items()}
    alone = _alone(plan, credentials)
    section.series = {"rate": rates, "processor time": cpu, "authenticate alone": alone}
    section.rows = [
        *(_added(kind, cpu, "processor time that", BUDGET_US if "256" in kind else None) for kind in KINDS),
        *(
            _added(kind, {key: _best(one) for key, one in cpu.items()}, "between the best rounds, what", None)
            for kind in ("hs256", "rs256", "resource", "apikey")
        ),
        *(_added(kind, wall, "time that", None) for kind in ("hs256", "rs256", "apikey")),
        *(
            compare(f"calls with {label}", rates["ours none"], rates[f"ours {k}"], unit="req/s")
            for k, label in KINDS.items()
        ),
        *(
            compare("calls with a Bearer JWT, RS256", rates[f"{r.key} rs256"], rates["ours rs256"], unit="req/s")
            for r in RIVALS
        ),
        *(_added_by_rival(rival, cpu) for rival in RIVALS),
        *_alone_rows(alone),
    ]
    section.notes += [
        "Time per call is one divided by the rate of one worker that is kept busy; processor time is the server's own, and "
        "depends less on what else the machine does: it is the one with the budget. What is added is the median of the differences within a round.",
        "On a machine that is busy with other things even processor time per call grows and scatters: look at "
        "the brackets. The rows `between the best rounds` show how much of a miss may be that; "
        "they carry no budget.",
        "A Bearer token is remembered after the first call. A DPoP proof is verified every time; one proof is "
        "sent over and over here, so the memory of proofs is off.",
        "mcp has no verifier of its own: a TokenVerifier with PyJWT, as its users write it. FastMCP: its JWTVerifier.",
    ]
    return section


def _with(contender: Contender, kind: str, label: str, credentials: Credentials) -> Contender:
    return dataclasses.replace(
        contender,
        key=f"{contender.key} {kind}",
        label=label,
        flags=("--auth", kind),
        env={**contender.env, **credentials.environment},
    )


def _measure(
    live: Live | str, one: Contender, plan: Plan, credentials: Credentials, costs: dict[str, list[float]]
) -> Callable[[], float]:
    kind = one.key.partition(" ")[2]
    more = credentials.headers(kind) if isinstance(live, Live) else {}
    return call_rate(live, plan, "add", "modern", costs[one.key], more)


def _difference(label: str, of: Series, base: Series) -> Series:
    """What one has more than the other, round by round: neighbours in a round met the same machine."""
    pairs = zip(of.values, base.values, strict=False)
    return Series(label, [mine - others for mine, others in pairs], of.failure or base.failure)


def _best(of: Series) -> Series:
    return Series(of.label, [min(of.values)] if of.values else [], of.failure)


def _added(kind: str, times: Mapping[str, Series], what: str, budget: float | None) -> Row:
    base, of = times["ours none"], times[f"ours {kind}"]
    extra = _difference(KINDS[kind], of, base)
    anchor = f"{base.label}: {base.show('us')} a call"
    row = limit(f"{what} {KINDS[kind]} adds to a call", extra, unit="us", at_most=budget or 0, anchor=anchor)
    row.ratio = compare("", base, of, unit="us").ratio
    if budget is None:
        row.budget, row.ok = "-", None
    return row


def _added_by_rival(rival: Contender, cpu: Mapping[str, Series]) -> Row:
    mine = _difference("trimaran", cpu["ours rs256"], cpu["ours none"])
    theirs = _difference(rival.label, cpu[f"{rival.key} rs256"], cpu[f"{rival.key} none"])
    row = compare("processor time that a Bearer JWT, RS256 adds to a call", theirs, mine, unit="us")
    return dataclasses.replace(row, ratio=_ratio_of_medians(mine, theirs))


def _ratio_of_medians(mine: Series, theirs: Series) -> str:
    """Differences of single rounds may be near zero, or below: their ratios say nothing."""
    if mine.median is None or not theirs.median:
        return "-"
    return f"{mine.median / theirs.median:.2g}x"


def _alone(plan: Plan, credentials: Credentials) -> dict[str, Series]:
    """`provider.authenticate` in a process of its own, without HTTP around it."""
    kinds = ("hs256", "rs256", "resource", "apikey", "hs256 first", "rs256 first")
    once = functools.lru_cache(maxsize=1)(_probe)

    def read(kind: str, turn: list[int]) -> Callable[[], float]:
        def measure() -> float:
            turn[0] += 1
            return once(turn[0], plan.seconds / 4, tuple(credentials.environment.items()))[kind]

        return measure

    return rounds(3 if plan.quick else 5, {kind: ("seen before", read(kind, [0])) for kind in kinds})


def _probe(turn: int, seconds: float, environment: tuple[tuple[str, str], ...]) -> dict[str, float]:
    """One run gives all kinds; `turn` tells runs apart."""
    command = [str(who.OURS.python), str(who.PROBES / "authenticate.py"), str(seconds)]
    env = {**os.environ, **dict(environment)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UnavailableError(lines[-1] if lines else f"the probe exited with {done.returncode}")
    return json.loads(done.stdout)


def _alone_rows(alone: Mapping[str, Series]) -> list[Row]:
    by_itself = [
        limit(f"provider.authenticate by itself, {KINDS[kind]}", alone[kind], unit="us", at_most=BUDGET_US)
        for kind in ("hs256", "rs256", "resource", "apikey")
    ]
    first = [
        compare(f"the same for a token never seen, {KINDS[kind]}", alone[kind], alone[f"{kind} first"], unit="us")
        for kind in ("hs256", "rs256")
    ]
    return by_itself + first
