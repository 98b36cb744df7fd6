"""The reference pages are current: the limits table is the one `Limits` gives, the errors page says what the library says.

Rewrite the limits table with `TRIMARAN_UPDATE=1 pytest tests/docs/test_reference.py`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trimaran.errors as errors
from trimaran import Client, Limits, ProtocolError, Server, SyncClient
from trimaran.apps.cli import COMMANDS
from trimaran.apps.cli.exit_codes import MEANINGS
from trimaran.client import Elicitation, LogEntry, Sampling, StateEvent, option_types
from trimaran.client.options import Options
from trimaran.oauth import machine_grants
from trimaran.protocol.methods import METHODS
from trimaran.protocol.versions import SUPPORTED
from trimaran.serve import HttpServer, engine
from trimaran.server.context import Context
from trimaran.server.prompts import compile_prompt
from trimaran.server.tools import compile_tool

from .pages import DOCS, ROOT, SOURCE, said_strings

LIMITS = DOCS / "reference" / "limits.md"
ERRORS = DOCS / "reference" / "errors.md"
COVERAGE = DOCS / "spec-coverage.md"
BEGIN, END = "<!-- generated: limits -->", "<!-- end -->"


def reasons() -> dict[str, str]:
    """The docstring under each field of `Limits`."""
    tree = ast.parse((SOURCE / "server" / "limits.py").read_text())
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Limits").body
    found: dict[str, str] = {}
    for field, after in zip(body, body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(after, ast.Expr), f"{field.target.id} has no reason under it"
            assert isinstance(after.value, ast.Constant)
            found[field.target.id] = " ".join(re.sub(r" \(R\d+\)", "", str(after.value.value)).split())
    return found


def shown(name: str, value: Any) -> str:
    if value is None:
        return "`None`"
    if name.endswith("_bytes"):
        unit, size = ("MiB", 1024 * 1024) if value >= 1024 * 1024 else ("KiB", 1024)
        return f"`{value}` ({value // size} {unit})"
    return f"`{value:g}` s" if isinstance(value, float) else f"`{value}`"


def table() -> str:
    limits, why = Limits(), reasons()
    assert list(why) == list(Limits.__struct_fields__)
    rows = [f"| `{name}` | {shown(name, getattr(limits, name))} | {why[name]} |" for name in Limits.__struct_fields__]
    return "\n".join([BEGIN, "", "| limit | default | reason |", "|---|---|---|", *rows, "", END])


def test_the_limits_table_is_current() -> None:
    page = LIMITS.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    if os.environ.get("TRIMARAN_UPDATE"):
        LIMITS.write_text(before + table() + after)
        return
    assert BEGIN + rest.partition(END)[0] + END == table()


def test_the_errors_page_quotes_the_library() -> None:
    """Every quoted message is one the library can say; what is filled in stands there as <something>."""
    said = [re.sub(r"\{\}", "\0", text) for text in said_strings()]
    quoted = re.findall(r"^> (.+)$", ERRORS.read_text(), re.MULTILINE)
    assert len(quoted) > 30
    forms = {text: re.sub(r"<[^<>]+>", "\0", text) for text in quoted}
    missing = [text for text, form in forms.items() if not any(form in other for other in said)]
    assert missing == []


def test_the_errors_page_lists_every_code_with_its_status() -> None:
    page = ERRORS.read_text()
    for name in dir(errors):
        if name.startswith("CODE_"):
            code = getattr(errors, name)
            row = re.search(rf"^\| `{code}` \|.*$", page, re.MULTILINE)
            assert row, f"{name} ({code}) has no row"
            if name not in ("CODE_RESOURCE_NOT_FOUND", "CODE_URL_ELICITATION_REQUIRED"):
                assert f"| {ProtocolError(code, '').status} |" in row[0], row[0]


def test_the_errors_page_names_every_exception() -> None:
    page = ERRORS.read_text()
    names = [n for n in errors.__all__ if not n.startswith("CODE_")]
    assert [n for n in names if f"`{n}`" not in page] == []


def test_the_coverage_table_names_every_method_and_revision() -> None:
    page = COVERAGE.read_text()
    assert [m for m in METHODS if f"`{m}`" not in page] == []
    assert [v for v in SUPPORTED if v not in page] == []


def test_the_coverage_table_says_where_the_client_does_each_thing() -> None:
    """Every row has a column for either side; "-" where there is nothing to do."""
    headers = re.findall(r"^\| area \|.*$", COVERAGE.read_text(), re.MULTILINE)
    assert set(headers) == {"| area | revisions | server | client | notes |"}


def test_every_decision_record_has_its_parts() -> None:
    records = sorted((DOCS / "adr").glob("[0-9]*.md"))
    numbers = [record.name[:4] for record in records]
    assert len(set(numbers)) == len(numbers)  # a number may be missing: its record is still being written
    for record in records:
        headings = re.findall(r"^## (.+)$", record.read_text(), re.MULTILINE)
        assert headings == ["Situation", "Decision", "Rejected", "Cost", "Revisit when"], record.name
        assert re.search(r"^Date: \d{4}-\d\d-\d\d$", record.read_text(), re.MULTILINE), record.name


def test_the_changelog_has_this_version() -> None:
    from trimaran import __version__

    assert f"## {__version__}" in Path(ROOT / "CHANGELOG.md").read_text()


def test_the_glossary_has_the_fixed_words() -> None:
    """Whose rule: ours; these words mean one thing each, in code and in prose."""
    page = (DOCS / "glossary.md").read_text()
    words = (
        "Call",
        "Notification",
        "Reply",
        "Peer",
        "Principal",
        "Exchange",
        "Context",
        "Transport",
        "Guard",
        "Catalog",
    )
    words += ("Channel", "Client", "Dialect", "Dialer", "Link", "Deadline", "Target", "Change queue")
    words += ("Challenge", "Flow", "Grant", "Issuer", "Proof", "Provider", "Resource", "Step-up")
    assert [w for w in words if f"**{w}**" not in page] == []


# Guides leave nothing out: every option and every member is on the page that is about it.


def missing_on(pages: str, names: Iterable[str]) -> list[str]:
    """The names that none of these guides has; `pages` is a file name, or a pattern of them."""
    text = "".join(page.read_text() for page in sorted((DOCS / "guides").glob(pages)))
    return [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]


def keywords(fn: Any) -> list[str]:
    return [p.name for p in inspect.signature(fn).parameters.values() if p.kind is p.KEYWORD_ONLY]


def test_the_http_page_has_every_option() -> None:
    from trimaran.legacy.server_http import LegacyHttp

    # A store is refused in this release; backlog and reuse_port are for those who read the source.
    known = {*keywords(HttpServer.__init__), *keywords(engine), *keywords(LegacyHttp.__init__)}
    assert missing_on("http.md", sorted(known - {"store", "backlog", "reuse_port"})) == []


def test_the_tools_page_has_every_option() -> None:
    # Two have pages of their own: `scopes` with HTTP, `cache_ttl` with resources.
    assert missing_on("tools.md", [k for k in keywords(compile_tool) if k != "cache_ttl"]) == []
    assert "cache_ttl" in (DOCS / "guides" / "resources-and-prompts.md").read_text()


def test_the_context_page_has_every_member() -> None:
    members = [name for name in dir(Context) if not name.startswith("_")]
    # The last two are other names of `sample` and `roots`.
    assert missing_on("context.md", [m for m in members if m not in ("create_message", "list_roots")]) == []


def test_the_middleware_page_has_every_method() -> None:
    server = Server("any", version="1.0.0")
    assert missing_on("middleware-and-mounting.md", list(server.runtime.dispatcher.handlers)) == []


def test_the_callbacks_page_has_every_callback() -> None:
    """Whose rule: R3's list of callbacks."""
    names = (
        "server_info instructions capabilities init list_tools call_tool list_resources list_resource_templates "
        "read_resource subscribe_resource unsubscribe_resource list_prompts get_prompt complete set_log_level"
    )
    assert missing_on("callbacks.md", names.split()) == []


def test_the_prompts_page_has_every_option() -> None:
    assert missing_on("resources-and-prompts.md", keywords(compile_prompt)) == []


def test_the_server_page_has_every_option_and_method() -> None:
    text = (DOCS / "reference" / "server.md").read_text()
    # What other parts of the library use, and nobody else needs.
    inner = {
        "describe_as",
        "encoded_page",
        "get_ready",
        "hold",
        "refresh_tasks",
        "release",
        "gates",
        "handshake_capabilities",
        "prepare_to_fork",
        "reader",
        "require_scopes",
        "state_of",
        "with_cache_hints",
    }
    methods = {name for name in dir(Server) if not name.startswith("_")} - inner
    names = {"name", *keywords(Server.__init__), *methods}
    assert sorted(name for name in names if f"`{name}" not in text and f"`await {name}" not in text) == []


# The client's pages.


def params(fn: Any) -> list[str]:
    """The names of a method's parameters, those of its typed options included."""
    parameters = inspect.signature(fn).parameters.values()
    names = [p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD]
    for option in (p for p in parameters if p.kind is p.VAR_KEYWORD):
        name = option.annotation.removeprefix("Unpack[").rstrip("]")
        home = machine_grants if hasattr(machine_grants, name) else option_types
        names += getattr(home, name).__annotations__
    return names


def public(cls: type) -> list[str]:
    return [name for name in dir(cls) if not name.startswith("_")]


def test_the_client_page_has_every_option_with_its_default() -> None:
    page = (DOCS / "reference" / "client.md").read_text()
    options = Options()
    for name in Options.__struct_fields__:
        assert f"| `{name}` | `{getattr(options, name)!r}` |" in page, name


def test_the_client_page_has_every_member_with_its_parameters() -> None:
    page = (DOCS / "reference" / "client.md").read_text()
    for name in public(Client):
        member = inspect.getattr_static(Client, name)
        if isinstance(member, property):
            assert f"`{name}`" in page, name
            continue
        written = re.findall(rf"`{name}\(([^)]*)\)`", page)
        assert params(member) in [re.findall(r"\w+", one) for one in written], name


def test_the_sync_client_lacks_nothing() -> None:
    assert [name for name in public(Client) if name not in public(SyncClient)] == []


def test_the_client_page_has_what_handlers_are_given() -> None:
    page = (DOCS / "reference" / "client.md").read_text()
    rows = {row.split("`")[1]: row for row in page.splitlines() if re.match(r"\| `on_\w+` \| ", row) and " | " in row}
    for handler, given in (
        ("on_elicit", Elicitation),
        ("on_sample", Sampling),
        ("on_log", LogEntry),
        ("on_state", StateEvent),
    ):
        missing = [name for name in public(given) if not re.search(rf"`{name}\b", rows[handler])]
        assert missing == [], handler


def test_the_client_guide_has_every_option() -> None:
    """Whose rule: R281. `cwd`, `tap` and the rest are all told of somewhere on the pages."""
    assert missing_on("client*.md", Options.__struct_fields__) == []


def test_the_client_guide_ends_with_a_checklist_for_production() -> None:
    """R281: some 18 sections on three pages, a production checklist among them."""
    guides = {page.name: page.read_text() for page in (DOCS / "guides").glob("client*.md")}
    headings = {name: re.findall(r"^## (.+)$", text, re.MULTILINE) for name, text in guides.items()}
    assert sum(map(len, headings.values())) >= 18
    assert headings["client.md"][-1] == "Before production"


def test_the_command_line_page_has_every_option_and_exit_code() -> None:
    page = (DOCS / "guides" / "command-line.md").read_text()
    for name in ("list", "call", "read", "prompt", "doctor"):
        command = importlib.import_module(COMMANDS[name][0]).command
        flags = [flag for one in command.params for flag in one.opts if flag.startswith("--")]
        assert [flag for flag in flags if f"`{flag}`" not in page] == [], name
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in page


# Authorization.


def test_the_auth_page_has_every_public_name_and_option() -> None:
    """Whose rule: ours. Parameters of classes are options, so each is explained; those of steps are named as far as one needs them."""
    import trimaran.auth
    import trimaran.oauth
    import trimaran.state
    import trimaran.state.token_storage

    page = (DOCS / "reference" / "auth.md").read_text()
    for module in (trimaran.auth, trimaran.oauth, trimaran.state.token_storage):
        missing = [name for name in module.__all__ if not re.search(rf"\b{name}\b", page)]
        assert missing == [], module.__name__
    made = [getattr(trimaran.auth, name) for name in dir(trimaran.auth)]
    made += [trimaran.oauth.OAuth, trimaran.oauth.ClientCredentials, trimaran.oauth.EnterpriseManaged]
    made += [trimaran.oauth.WorkloadIdentity, trimaran.state.FileTokens]
    for cls in made:
        if not inspect.isclass(cls) or cls.__name__ == "Principal":
            continue
        names = [name for name in params(cls.__init__) if name not in ("args", "kwargs")]
        assert [name for name in names if not re.search(rf"\b{name}\b", page)] == [], cls.__name__


def test_the_auth_page_has_every_member_of_a_principal() -> None:
    from trimaran.auth import Principal

    page = (DOCS / "reference" / "auth.md").read_text()
    assert [name for name in public(Principal) if not re.search(rf"\b{name}\b", page)] == []


def test_the_authentication_page_has_every_kind_of_refusal() -> None:
    from trimaran.auth.refusal import KINDS

    page = (DOCS / "guides" / "authentication.md").read_text()
    for name, kind in KINDS.items():
        row = re.search(rf"^\|[^|]*`{name}`[^|]*\| (\d+) \| `(\w+)` \|$", page, re.MULTILINE)
        assert row, name
        assert (int(row[1]), row[2]) == (kind.status, kind.code), name
