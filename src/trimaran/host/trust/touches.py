"""The things that a tool touches: private data, untrusted content, the outside world, the machine.

Pure, and tables. Who knows better comes first: the configuration of the tool, that of its server, what is known of common
servers, then the words of the tool's name with its annotations. A server's own annotations are believed where they add a
touch, and where they take one away only if its name does not speak against it.

    private      its results may hold what is not public: files, mail, calendars, databases, private repositories
    untrusted    its results may hold words of strangers: pages, issues, mail, comments, search results
    outside      its arguments may reach strangers: it sends, posts, publishes, or fetches an address that it is given
    acts         it changes something that matters: runs commands, writes, deletes, pays, starts agents
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import to_builtins

from trimaran.types import Tool, as_object

from ..config.model import Touch

Known = Mapping[str, tuple[Touch, ...]]

_FILES: Final[Known] = {
    "read_*|get_*|list_*|search_*|directory_tree": ("private",),
    "write_*|edit_*|move_*|create_*|delete_*": ("acts",),
}
_GIT_HOST: Final[Known] = {
    "get_file_contents|search_code": ("private", "untrusted"),
    "get_repository*|list_repos*|get_me|list_projects|get_project": ("private",),
    "*issue_comment*|add_*comment*|create_*|update_*|push_*|merge_*|fork_*|add_*": ("outside", "acts"),
    "*issue*|*pull_request*|*merge_request*|*discussion*|*comment*|*notification*|*commit*": ("untrusted", "private"),
}
_CHAT: Final[Known] = {
    "*post*|*send*|*reply*|*reaction*|*create*": ("outside",),
    "*": ("private", "untrusted"),
}
_WEB: Final[Known] = {"*": ("untrusted", "outside")}
_DATA: Final[Known] = {
    "*write*|*create*|*insert*|*update*|*delete*|*drop*|*set*|*execute*": ("private", "acts"),
    "*": ("private",),
}
_SHELL: Final[Known] = {"*": ("private", "acts", "outside")}
_PURE: Final[Known] = {"*": ()}

# The words of a package, a command or a URL's host -> the tools of that server, first match first.
_SERVERS: Final[tuple[tuple[str, Known], ...]] = (
    ("server-filesystem|mcp-filesystem|filesystem-mcp|rust-mcp-filesystem", _FILES),
    ("server-github|github-mcp|githubcopilot|server-gitlab|gitlab-mcp|gitea-mcp|bitbucket", _GIT_HOST),
    ("mcp-server-git", {"*commit|*add|*reset|*checkout|*init": ("acts",), "*": ("private", "untrusted")}),
    ("slack|discord|telegram|teams-mcp|mattermost|whatsapp", _CHAT),
    ("gmail|google-workspace|outlook|ms-365|imap|email-mcp|mail-mcp", _CHAT),
    (
        "mcp-server-fetch|fetch-mcp|firecrawl|tavily|exa-mcp|brave-search|duckduckgo|searxng|jina|crawl4ai|context7",
        _WEB,
    ),
    ("playwright|puppeteer|browserbase|browser-use|chrome-devtools|selenium", {"*": ("untrusted", "outside", "acts")}),
    ("postgres|mysql|sqlite|mongodb|redis-mcp|bigquery|snowflake|airtable|supabase|clickhouse|elasticsearch", _DATA),
    (
        "notion|atlassian|jira|confluence|linear|asana|trello|sentry|zendesk|hubspot|salesforce|stripe|intercom",
        {
            "*create*|*update*|*comment*|*add*|*send*|*delete*": ("outside", "acts"),
            "*": ("private", "untrusted"),
        },
    ),
    ("google-drive|gdrive|dropbox|onedrive|box-mcp|obsidian", _DATA),
    (
        "google-calendar|calendar-mcp|caldav",  # an invitation is words of a stranger, and sends words to one
        {
            "*create*|*update*|*add*|*invite*|*respond*|*delete*": ("outside", "acts"),
            "*": ("private", "untrusted"),
        },
    ),
    ("server-memory|mem0|mcp-memory", {"*": ("private",)}),
    ("shell|terminal|desktop-commander|code-runner|kubernetes|docker-mcp|ssh-mcp|aws-mcp|azure|terraform", _SHELL),
    ("mcp-server-time|sequential-?thinking|calculator|mcp-server-everything-time", _PURE),
)

# The words of a tool's name, as people name tools.
_WORDS: Final[tuple[tuple[re.Pattern[str], tuple[Touch, ...]], ...]] = (
    (
        re.compile(
            r"(?:^|_)(?:send|post|publish|tweet|email|reply|comment|upload|share|forward|notify|push|invite|sms|webhook|report_event|telemetry)(?:_|$)"
        ),
        ("outside",),
    ),
    (
        re.compile(r"(?:^|_)(?:fetch|browse|navigate|crawl|scrape|download|http|request|curl|open_url|web|url)(?:_|$)"),
        ("untrusted", "outside"),
    ),
    (
        re.compile(
            r"(?:^|_)(?:read|get|list|search|find|load|view|show|summari[sz]e)_(?:\w+_)?(?:issues?|comments?|pages?|articles?|emails?|mails?|inbox|messages?|tickets?|posts?|tweets?|feeds?|reviews?|diff|pr|pull_requests?|notes?|news|websites?|threads?|channels?)(?:_|$)"
        ),
        ("untrusted",),
    ),
    (
        re.compile(
            r"(?:^|_)(?:private|secrets?|credentials?|vault|inbox|calendar|contacts?|salary|customers?|patients?|payroll|env|password|keychain|wallet)(?:_|$)"
        ),
        ("private",),
    ),
    (
        re.compile(
            r"(?:^|_)(?:read|get|open|load|view|search|list|query|select|export|cat)_(?:\w+_)?(?:files?|documents?|docs|drive|emails?|mails?|messages?|db|database|sql|tables?|records?|rows?|repo|repository|memory|memories|notebooks?|history)(?:_|$)|(?:^|_)(?:query|sql|recall)(?:_|$)"
        ),
        ("private",),
    ),
    (
        re.compile(
            r"(?:^|_)(?:run|exec|execute|eval|shell|bash|command|spawn|launch|install|deploy|apply|write|delete|remove|drop|edit|move|rename|update|pay|transfer|order|buy|approve|grant|merge|restart|kill|register|connect|repair)(?:_|$)"
        ),
        ("acts",),
    ),
)
# Tools that publish where others see it, and tools that run anything at all.
_MADE_OUTSIDE: Final = re.compile(
    r"(?:^|_)(?:create|add|open|submit)_(?:\w+_)?(?:issue|pull_request|pr|merge_request|gist|event|ticket|invoice|payment_link|share_link)s?$"
    r"|(?:^|_)put_object(?:_|$)"
)
_RUNS_ANYTHING: Final = re.compile(
    r"(?:^|_)(?:run|exec|execute)_(?:\w+_)?(?:command|shell|bash|script|terminal|process|code|python)s?(?:_|$)|^(?:shell|bash|terminal|exec|run_?code)$"
)
# Arguments that name a place or people outside.
_ADDRESSES: Final = frozenset(
    {"url", "urls", "uri", "webhook", "webhook_url", "endpoint", "attendees", "recipients", "bcc"}
)
# "email" and "comment" are things to send and things to read.
_READING: Final = re.compile(r"(?:^|_)(?:read|get|list|search|find|load|view|show|count)_")
_SENDING: Final = re.compile(r"(?:^|_)(?:send|post|publish|tweet|forward|upload|notify|invite)(?:_|$)")
_FETCHING: Final = _WORDS[1][0]
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS: Final = re.compile(r"[^a-z0-9]+")


def known_touches(hints: Iterable[str], tool: str) -> frozenset[Touch] | None:
    """The known touches of a tool of a common server; None if the server is not known.

    Args:
        hints: Words that say which server it is: the command and its arguments, or the URL.
    """
    where = " ".join(hints).lower()
    for pattern, tools in _SERVERS:
        if re.search(rf"(?<![a-z0-9])(?:{pattern})(?![a-z])", where):
            rows = (
                touches
                for globs, touches in tools.items()
                if any(fnmatchcase(tool.lower(), glob) for glob in globs.split("|"))
            )
            return frozenset(next(rows, ()))
    return None


def touches_of(tool: Tool, *, configured: Iterable[Touch] | None = None, hints: Iterable[str] = ()) -> frozenset[Touch]:
    """The things that a call of this tool touches.

    Args:
        configured: The setting of the configuration; it is believed.
        hints: As for `known_touches`.
    """
    if configured is not None:
        return frozenset(configured)
    known = known_touches(hints, tool.name)
    if known is not None:
        return known
    name = _SEPARATORS.sub("_", _CAMEL.sub("_", tool.name).lower())
    touches: set[Touch] = {touch for pattern, row in _WORDS if pattern.search(name) for touch in row}
    if _MADE_OUTSIDE.search(name):
        touches.add("outside")
    if _RUNS_ANYTHING.search(name):
        touches |= {"private", "acts", "outside"}
    if _READING.search(name) and not _SENDING.search(name) and not _FETCHING.search(name):
        touches.discard("outside")
    if not _ADDRESSES.isdisjoint(_argument_names(tool)):
        touches |= {"untrusted", "outside"} if _READING.search(name) else {"outside"}
    hint = (as_object(tool.annotations) or as_object(to_builtins(tool.annotations)) or {}).get
    if _hint_value(hint, "open_world_hint", "openWorldHint") is True:
        touches |= {"untrusted", "outside"}
    if _hint_value(hint, "destructive_hint", "destructiveHint") is True:
        touches.add("acts")
    return frozenset(touches)


def _argument_names(tool: Tool) -> set[str]:
    schema = as_object(tool.input_schema) or {}
    names = as_object(schema.get("properties")) or {}
    return {_SEPARATORS.sub("_", _CAMEL.sub("_", name).lower()) for name in names}


def _hint_value(hint: Any, *names: str) -> Any:
    return next((value for name in names if (value := hint(name)) is not None), None)
