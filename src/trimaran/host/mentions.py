"""Replace `@server:resource args` in a person's message by the resource's content (R262-R266).

    Compare @docs:readme with @issues:issue 42 please.

A server goes by its name or its safe name, a resource by its name or its URI, a template by its name. A template takes the
next words of the line, one for each placeholder. Punctuation at the end of a word is not part of it; quote a word that has
blanks or ends so. Too few words raise `TemplateArity` before anything is sent. A mention that cannot be resolved stays in
the text and is reported, because a mail address is no mention.

The first mention of a server reads its lists. They are read again only after the server says that they changed, or comes
back. A mention starts a lazy server.

This is for text that people write. It asks no permission, so never pass a model's text to it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, final

from msgspec import Struct

from trimaran.client.client import Client
from trimaran.client.results import ResourceResult
from trimaran.errors import DeclarationError, Error, ProtocolError, TimedOut, Unsupported
from trimaran.protocol.uritemplate import UriTemplate
from trimaran.types import Resource, ResourceReference, ResourceTemplate

log: Final = logging.getLogger("trimaran.host")

# A possible mention of an unknown server; known servers are found by their names.
_ANY_SERVER: Final = r"[A-Za-z0-9_-]{1,64}"
_NAME: Final = re.compile(r"[^\s@]+")
_WORD: Final = re.compile(r"""[ \t]+(?:"([^"\n]*)"|'([^'\n]*)'|(\S+))""")
_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")
_PUNCTUATION: Final = ".,;:!?)]}>'\""
_MOST: Final = 50  # mentions in one message
_MOST_PAGES: Final = 200
_PATIENCE: Final = 30.0  # seconds for a server's lists
_SOON: Final = 5.0  # seconds for a completion: by then a person types on
_MOST_COMPLETIONS: Final = 100  # the limit of the specification


class ResourceUnknown(Error):
    """No resource, or no server, of this name; or more than one resource."""

    kind = "resource_unknown"


class TemplateArity(Error):
    """A template got more or fewer words than it has placeholders. Nothing was sent."""

    kind = "resource_template_arity"

    def __init__(self, message: str, *, wanted: int, given: int) -> None:
        super().__init__(message)
        self.wanted = wanted
        self.given = given


@final
class Mention(Struct, frozen=True):
    """A resource that a message mentions."""

    server: str
    name: str
    uri: str
    text: str
    """As it stood in the message."""


@final
class Expansion(Struct, frozen=True):
    """A message with its mentions replaced."""

    text: str
    mentions: tuple[Mention, ...] = ()
    """The resources that are in the text now."""
    problems: tuple[str, ...] = ()
    """The mentions that stay in the text, and why."""


class _KnownResource(NamedTuple):
    resources: list[Resource]
    templates: list[tuple[ResourceTemplate, UriTemplate]]


class _FoundMention(NamedTuple):
    """A mention, and where it stands."""

    start: int
    end: int
    mention: Mention


@final
class Mentions:
    """The resources of a host's servers, listed on demand.

    Args:
        servers: The names of all servers, each with its safe name.
        client_of: Returns the client of a server, or raises the Error that says why there is none.
        show: Renders a resource's content for the message.
        wake: Starts a lazy server.
        failed: Called when a server fails to answer.
    """

    def __init__(
        self,
        servers: Callable[[], Mapping[str, str]],
        client_of: Callable[[str], Client],
        show: Callable[[Mention, ResourceResult], str],
        *,
        wake: Callable[[str], Awaitable[object]],
        failed: Callable[[str, Client, Error], None],
    ) -> None:
        self._servers = servers
        self._client_of = client_of
        self._show = show
        self._wake = wake
        self._failed = failed
        self._known: dict[str, _KnownResource] = {}
        self._reading: dict[str, asyncio.Lock] = {}
        self._changes: dict[str, int] = {}

    def forget(self, server: str) -> None:
        """Forget the server's lists, which may have changed (R263)."""
        self._known.pop(server, None)
        self._changes[server] = self._changes.get(server, 0) + 1

    async def known(self, server: str) -> _KnownResource:
        """The server's resources and templates, read once for all callers (R262)."""
        async with self._reading.setdefault(server, asyncio.Lock()):
            if (resources := self._known.get(server)) is not None:
                return resources
            await self._wake(server)
            before = self._changes.get(server, 0)
            client = self._client_of(server)
            if "resources" not in client.server_capabilities:
                resources = _KnownResource([], [])
            else:
                with self._watched(server, client):
                    resources = await _read_lists(client, server)
            if before == self._changes.get(server, 0):
                self._known[server] = resources
            return resources

    @contextmanager
    def _watched(self, server: str, client: Client) -> Generator[None]:
        try:
            yield
        except Error as error:
            self._failed(server, client, error)
            raise

    # --- reading one -------------------------------------------------------------------------------------------------

    async def resolve(self, server: str, name: str, words: Sequence[str]) -> str:
        """The URI of a resource, or of a template with these words filled in.

        Raises:
            ResourceUnknown: there is no such server, no such resource, or more than one.
            TemplateArity: the words are not as many as the template has placeholders.
        """
        uri, word_count = await self._find(server, name, words, is_uri=True)
        if word_count != len(words):
            raise _arity(f"{server}:{name}", word_count, len(words))
        return uri

    async def _find(self, server: str, name: str, words: Sequence[str], *, is_uri: bool) -> tuple[str, int]:
        """The URI, and how many of the words it took. `is_uri`: the name may also be a URI of one of the templates."""
        if server not in self._servers():
            raise ResourceUnknown(f"there is no server {server!r}; {_listed(self._servers())}")
        known = await self.known(server)
        uris = {listed.uri for listed in known.resources if name in (listed.name, listed.uri)}
        exact = {listed.uri for listed in known.resources if name == listed.uri}
        if len(uris) == 1 or exact:
            return (exact or uris).pop(), 0
        if uris:
            raise ResourceUnknown(
                f"the server {server!r} has {len(uris)} resources called {name!r}: give the URI of one"
            )
        matching = [
            uri_template for listed, uri_template in known.templates if name in (listed.name, listed.uri_template)
        ]
        if len(matching) > 1:
            raise ResourceUnknown(f"the server {server!r} has {len(matching)} templates called {name!r}")
        if matching:
            placeholder_count = len(matching[0].variables)
            if len(words) < placeholder_count:
                raise _arity(f"{server}:{name}", placeholder_count, len(words), matching[0].variables)
            return _expand(matching[0], words[:placeholder_count]), placeholder_count
        if is_uri and any(uri_template.match(name) is not None for _, uri_template in known.templates if ":" in name):
            return name, 0
        raise ResourceUnknown(f"the server {server!r} has no resource {name!r}")

    async def read(self, server: str, uri: str) -> ResourceResult:
        client = self._client_of(server)
        with self._watched(server, client):
            return await client.read_resource(uri)

    # --- a whole message ---------------------------------------------------------------------------------------------

    async def expand(self, text: str) -> Expansion:
        """The message with its mentions replaced. All of them are found before the first one is read.

        Raises:
            TemplateArity: a mentioned template is followed by too few words.
        """
        problems: list[str] = []
        mentioned = await self._mentioned(text, problems)
        unique = list(dict.fromkeys((item.mention.server, item.mention.uri) for item in mentioned))
        contents = await asyncio.gather(*(self.read(*item) for item in unique), return_exceptions=True)
        by_uri = dict(zip(unique, contents, strict=True))
        pieces: list[str] = []
        put_in: list[Mention] = []
        at = 0
        for start, end, mention in mentioned:
            content = by_uri[mention.server, mention.uri]
            if isinstance(content, Error):
                problems.append(f"{mention.text}: {content}")
                continue
            if isinstance(content, BaseException):
                raise content
            pieces += [text[at:start], self._show(mention, content)]
            put_in.append(mention)
            at = end
        return Expansion("".join([*pieces, text[at:]]), tuple(put_in), tuple(problems))

    async def _mentioned(self, text: str, problems: list[str]) -> list[_FoundMention]:
        mentioned: list[_FoundMention] = []
        until = 0
        for match in self._pattern().finditer(text):
            if match.start() < until:
                continue  # a word of the one before
            if len(mentioned) >= _MOST:
                problems.append(f"there are more than {_MOST} mentions: the rest is left as it stands")
                break
            try:
                resolved = await self._resolve_one(text, match)
            except TemplateArity:
                raise
            except Error as error:
                problems.append(f"{match[0]}: {error}")
                continue
            mentioned.append(resolved)
            until = resolved.end
        return mentioned

    def _pattern(self) -> re.Pattern[str]:
        """The pattern of a mention: a known server by either name, the longest first, or any other word."""
        servers = self._servers()
        names = sorted({*servers, *servers.values()}, key=len, reverse=True)
        return re.compile(rf"(?<![\w@.])@({'|'.join([*map(re.escape, names), _ANY_SERVER])}):([^\s@]+)")

    def _named(self, name: str) -> str:
        """The server of this name, or of this safe name; the name itself if there is none."""
        servers = self._servers()
        return name if name in servers else next((server for server, safe in servers.items() if safe == name), name)

    async def _resolve_one(self, text: str, match: re.Match[str]) -> _FoundMention:
        server, name = self._named(match[1]), match[2]
        words, ends = _words_after(text, match.end(), match.re)
        bare = name.rstrip(_PUNCTUATION)
        # A character that ends a sentence may also end a name; the whole name is tried first. A template's URI ends before it.
        if bare in ("", name) or await self._has(server, name):
            bare = name
        uri, word_count = await self._find(server, bare, words if bare == name else [], is_uri=True)
        end = ends[word_count - 1] if word_count else match.start(2) + len(bare)
        return _FoundMention(match.start(), end, Mention(server, bare, uri, text[match.start() : end]))

    async def _has(self, server: str, name: str) -> bool:
        try:
            await self._find(server, name, (), is_uri=False)
        except ResourceUnknown:
            return False
        except TemplateArity:
            return True
        return True

    async def complete(self, prefix: str) -> list[str]:
        """The mentions that begin with this prefix: servers, then the names of their resources (R264).

        A resource whose name has a blank, or is not unique, is offered by its URI.
        """
        text, servers = prefix.removeprefix("@"), self._servers()
        # A mention ends at a blank, and at an "@": what has one in its name is mentioned by its safe name.
        spoken = {name if _is_word(name) and ":" not in name else safe: name for name, safe in servers.items()}
        starts = [name for name in (*spoken, *servers, *servers.values()) if text.startswith(f"{name}:")]
        if not starts:
            return [f"@{name}:" for name in sorted(spoken) if name.startswith(text)]
        word = max(starts, key=len)
        begun = text[len(word) + 1 :]
        known = await self.known(self._named(word))
        listed = [(item.name, item.uri) for item in known.resources]
        listed += [(item.name, item.uri_template) for item, _ in known.templates]
        names = Counter(name for name, _ in dict.fromkeys(listed))
        matching: set[str] = set()
        for name, uri in listed:
            spelling = name if names[name] == 1 and _is_word(name) else uri
            if _is_word(spelling) and (name.startswith(begun) or spelling.startswith(begun)):
                matching.add(spelling)
        return [f"@{word}:{item}" for item in sorted(matching)]

    async def complete_argument(self, server: str, name: str, words: Sequence[str], prefix: str) -> list[str]:
        """The server's completions for the next word; empty if the server has none."""
        server = self._named(server)
        if server not in self._servers():
            return []
        try:
            async with asyncio.timeout(_SOON):
                known = await self.known(server)
                matching = [
                    uri_template
                    for listed, uri_template in known.templates
                    if name in (listed.name, listed.uri_template)
                ]
                if len(matching) != 1 or len(words) >= len(matching[0].variables):
                    return []
                (template,) = matching
                client = self._client_of(server)
                before = dict(zip(template.variables, words, strict=False))
                ref = ResourceReference(uri=template.text)
                with self._watched(server, client):
                    completion = await client.complete(ref, template.variables[len(words)], prefix, before)
        except (Error, TimeoutError) as error:
            log.debug("the server %r did not complete a word of %r: %s", server, name, error)
            return []
        # Line ends and invisible characters cannot be in a word; they would put text into the message beside it.
        return [value for value in completion.values[:_MOST_COMPLETIONS] if value.isprintable()]


async def _read_lists(client: Client, server: str) -> _KnownResource:
    try:
        async with asyncio.timeout(_PATIENCE):
            templates = await _templates(client)
            try:
                return _KnownResource(await client.list_resources_all(max_pages=_MOST_PAGES), templates)
            except ProtocolError:
                if not templates:
                    raise
                return _KnownResource([], templates)
    except TimeoutError:
        raise TimedOut(f"the server {server!r} did not list its resources within {_PATIENCE:g} s") from None


async def _templates(client: Client) -> list[tuple[ResourceTemplate, UriTemplate]]:
    templates: list[tuple[ResourceTemplate, UriTemplate]] = []
    try:
        listed = await client.list_resource_templates_all(max_pages=_MOST_PAGES)
    except (Unsupported, ProtocolError) as error:  # a server may well have resources and know of no templates
        log.info("the templates of resources cannot be listed: %s", error)
        return templates
    for listed_template in listed:
        try:
            templates.append((listed_template, UriTemplate(listed_template.uri_template)))
        except DeclarationError:
            continue  # it cannot be filled in, so it cannot be mentioned
    return templates


def _expand(template: UriTemplate, words: Sequence[str]) -> str:
    """Fill the words in. The template's own text stays as it is, also where it is not ASCII (R266)."""
    values = dict(zip(template.variables, words, strict=True))
    return _EXPRESSION.sub(lambda match: UriTemplate(match[0]).expand(values), template.text)


def _is_word(text: str) -> bool:
    """Whether it can stand after `@server:` and is visible."""
    return text.isprintable() and _NAME.fullmatch(text) is not None


def _words_after(text: str, at: int, mention: re.Pattern[str]) -> tuple[list[str], list[int]]:
    """The words on the rest of the line, and where each ends."""
    words: list[str] = []
    ends: list[int] = []
    while (match := _WORD.match(text, at)) is not None:
        bare = match[3]
        if bare is not None and mention.match(bare):
            break  # another mention, and no word of this one; in quotes it would be
        at = match.end()
        if bare is None:
            words.append(match[1] if match[1] is not None else match[2])
            ends.append(at)
        else:
            word = bare.rstrip(_PUNCTUATION) or bare
            words.append(word)
            ends.append(at - (len(bare) - len(word)))
    return words, ends


def _arity(name: str, expected: int, count: int, placeholders: Sequence[str] = ()) -> TemplateArity:
    names = f" ({', '.join(placeholders)})" if placeholders else ""
    return TemplateArity(
        f"@{name} takes {expected} word{'' if expected == 1 else 's'} after it{names}, and got {count}; nothing was sent",
        wanted=expected,
        given=count,
    )


def _listed(servers: Iterable[str]) -> str:
    names = sorted(servers)
    return f"the servers are {', '.join(names)}" if names else "there are no servers"
