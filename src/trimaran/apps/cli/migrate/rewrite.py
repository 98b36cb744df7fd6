"""Rewrite a program of FastMCP or the official SDK to Trimaran, and list what is left to a person.

Pure: text in, text and leftovers out. Three passes over one syntax tree, which keeps comments and layout:

    survey    which variables are servers and contexts, and which options of a server belong to `run`
    rewrite   calls, decorators, names; each name of theirs that has no counterpart becomes a leftover and stays
    imports   drops the imports that nothing uses any more, and adds ours in their place

A name is told by what it is imported as, never by its spelling, so a variable `mcp` is not the package. A program without
their imports comes back as it is, so a second run changes nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast, final

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider, QualifiedNameProvider, QualifiedNameSource

from .names import (
    CLIENTS,
    CONTEXT_ATTRIBUTES,
    LEFT_CALLS,
    LEFT_CONTEXT,
    OPTIONS,
    PRIVATE_ATTRIBUTES,
    SERVERS,
    SESSION_NOTICES,
    is_foreign,
    is_type,
    left_reason,
    our_template,
    replacement,
)

_DEEPEST: Final = 120  # levels of syntax; at about 140 the visitors of libcst meet the limit on recursion

_HTTP: Final = ("http", "streamable-http", "streamable_http", "sse")
_SERVES: Final = {
    "run_async": None,
    "run_stdio_async": "stdio",
    "run_http_async": "http",
    "run_streamable_http_async": "http",
    "run_sse_async": "sse",
}
_APPS: Final = {"http_app": "http", "streamable_http_app": "http", "sse_app": "sse"}
_DECORATORS: Final = ("tool", "resource", "prompt", "custom_route")
_CAMEL: Final = re.compile(r"(?<=[a-z])([A-Z])")
_CONTENT: Final = frozenset(
    [
        "TextContent",
        "ImageContent",
        "AudioContent",
        "ResourceLink",
        "EmbeddedResource",
        "ToolUseContent",
        "ToolResultContent",
        "PromptReference",
    ]
)
_TYPE_MODULES: Final = ("mcp.types", "mcp_types")
# A program that uses one of these stays as it is: its types belong to that server or session.
_WHOLE: Final = ("mcp.server.lowlevel", "mcp.server.Server", "mcp.ClientSession", "mcp.client", "mcp.server.context")
_Import = tuple[str, str, str | None]
"""Module, name, and the name it is imported as, if that is another."""


class Leftover(NamedTuple):
    """Something that a person has to look at."""

    line: int
    text: str


class Migration(NamedTuple):
    """A file after the rewrite."""

    code: str
    left: list[Leftover]
    has_server: bool = False
    """Whether it speaks of a server that is ours now."""
    is_kept: bool = False
    """Whether it stays as it is: it has a low-level server or a session of theirs."""


class NotPython(Exception):
    """A file of the program cannot be read as Python."""


class TooNested(Exception):
    """The source nests deeper than anybody reads."""


def migrate_program(sources: Mapping[str, str]) -> dict[str, Migration]:
    """Rewrite the files of one program, by their names.

    Where their low-level server or session stays, and nothing becomes a server of ours, the other files stay too:
    their types go to that server.

    Raises:
        NotPython: one of them cannot be read.
    """
    migrations: dict[str, Migration] = {}
    for name, source in sources.items():
        try:
            migrations[name] = migrate_source(source)
        except (cst.ParserSyntaxError, TooNested) as error:
            raise NotPython(f"{name} cannot be read as Python: {str(error).splitlines()[0]}") from None
    kept_file = next((name for name, migration in migrations.items() if migration.is_kept), None)
    if kept_file is None or any(migration.has_server for migration in migrations.values()):
        return migrations
    reason = Leftover(1, f"it stays as it is, because its types go to what stays in {kept_file}")
    return {
        name: migration if migration.code == sources[name] else Migration(sources[name], [reason])
        for name, migration in migrations.items()
    }


def migrate_source(source: str) -> Migration:
    """Rewrite one file.

    Raises:
        libcst.ParserSyntaxError: it is no Python.
        TooNested: it would end the process: the parser of libcst has a stack and no limit.
    """
    if _is_too_nested(source):
        raise TooNested(f"it nests deeper than {_DEEPEST} levels")
    module = cst.parse_module(source)
    if not _imports_theirs(module):
        return Migration(source, [])
    wrapper = MetadataWrapper(module)
    survey = _Survey()
    wrapper.visit(survey)
    survey.servers -= survey.ours
    rewrite = _Rewrite(survey)
    module = wrapper.visit(rewrite)
    if any(name.startswith(_WHOLE) for name in rewrite.kept_names):
        # Half of such a program would speak to a server of theirs, and half to one of ours.
        return Migration(source, sorted(set(rewrite.left)), is_kept=True)
    module = module.visit(_Imports(rewrite.needed, rewrite.kept_names))
    has_server = any(name == "Server" for _, name, _ in rewrite.needed)
    return Migration(module.code, sorted(set(rewrite.left)), has_server)


def _is_too_nested(source: str) -> bool:
    try:
        level: list[ast.AST] = [ast.parse(source)]
    except (RecursionError, MemoryError):
        return True
    except SyntaxError as error:  # what else is wrong is for libcst to say, which reads newer Python as well
        return "too many" in str(error)
    except ValueError:  # as this Python says that there is a null byte
        return False
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return bool(level)


def _imports_theirs(module: cst.Module) -> bool:
    class Look(cst.CSTVisitor):
        is_theirs = False

        def visit_Import(self, node: cst.Import) -> None:
            self.is_theirs |= any(is_foreign(_text(alias.name)) for alias in node.names)

        def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
            self.is_theirs |= not node.relative and node.module is not None and is_foreign(_text(node.module))

    look = Look()
    module.visit(look)
    return look.is_theirs


def _text(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _string(node: cst.CSTNode | None) -> str | None:
    """The value of a plain string literal."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def _arg(keyword: str | None, value: cst.BaseExpression | str) -> cst.Arg:
    expression = cst.parse_expression(value) if isinstance(value, str) else value
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(
        expression,
        keyword=None if keyword is None else cst.Name(keyword),
        equal=cst.MaybeSentinel.DEFAULT if keyword is None else tight,
    )


_COMMA: Final = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


class _Named:
    """Full names of nodes, as the imports of the file resolve them."""

    METADATA_DEPENDENCIES = (QualifiedNameProvider, PositionProvider)

    def full_name(self, node: cst.CSTNode) -> str | None:
        """The full name of an imported thing of theirs; None for anything else."""
        return next(filter(is_foreign, self.imported(node)), None)

    def imported(self, node: cst.CSTNode) -> list[str]:
        names: Any = cast("Any", self).get_metadata(QualifiedNameProvider, node, None)
        names = (names() if callable(names) else names) or ()
        return [name.name for name in names if name.source is QualifiedNameSource.IMPORT]

    def line(self, node: cst.CSTNode) -> int:
        return cast("Any", self).get_metadata(PositionProvider, node).start.line

    def in_annotation(self, annotation: cst.Annotation | None) -> set[str]:
        """Their names in an annotation, at any depth."""
        if annotation is None:
            return set()
        nodes: list[cst.CSTNode] = [annotation.annotation]
        names: set[str] = set()
        while nodes:
            node = nodes.pop()
            if (name := self.full_name(node)) is not None:
                names.add(name)
            nodes.extend(node.children)
        return names


@final
class _Survey(_Named, cst.CSTVisitor):
    """Which variables hold a server, a Context, a client, or a person's answer."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: set[str] = set()
        self.ours: set[str] = set()
        """Servers that are ours already."""
        self.contexts: set[str] = set()
        self.clients: set[str] = set()
        self.answers: set[str] = set()
        """Variables that hold the answer to a `ctx.elicit`."""
        self.results: set[str] = set()
        """Variables that hold the result of a client's `call_tool`."""
        self.run_options: dict[str, list[cst.Arg]] = {}
        """Server to the options of its constructor that belong to `run`."""
        self.keeps_types = False
        """Whether it uses a type of mcp.types that we do not have."""
        self._makers: set[str] = set()

    def visit_Attribute(self, node: cst.Attribute) -> None:
        home, _, _ = (full := self.full_name(node) or "").rpartition(".")
        self.keeps_types |= home in _TYPE_MODULES and not is_type(full)

    def visit_Param(self, node: cst.Param) -> None:
        names = self.in_annotation(node.annotation)
        if names & SERVERS:
            self.servers.add(node.name.value)
        if any((replacement(name) or ("", ""))[1] == "Context" for name in names):
            self.contexts.add(node.name.value)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        if self.in_annotation(node.returns) & SERVERS:
            self._makers.add(node.name.value)

    def visit_Decorator(self, node: cst.Decorator) -> None:
        called = node.decorator.func if isinstance(node.decorator, cst.Call) else node.decorator
        declares = isinstance(called, cst.Attribute) and called.attr.value in _DECORATORS
        if declares and self.full_name(called) is None:
            self.servers.add(_text(cst.ensure_type(called, cst.Attribute).value))

    def visit_WithItem(self, node: cst.WithItem) -> None:
        if node.asname is not None and isinstance(node.item, cst.Call) and self.full_name(node.item.func) in CLIENTS:
            self.clients.add(_text(node.asname.name))

    def visit_Assign(self, node: cst.Assign) -> None:
        self._assigned([_text(target.target) for target in node.targets], node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._assigned([_text(node.target)], node.value)

    def _assigned(self, targets: list[str], value: cst.BaseExpression) -> None:
        if isinstance(value, cst.Await) and isinstance(value.expression, cst.Call):
            receiver, _, method = _text(value.expression.func).rpartition(".")
            if method == "elicit" and receiver in self.contexts:
                self.answers.update(targets)
            if method == "call_tool" and receiver in self.clients:
                self.results.update(targets)
        if not isinstance(value, cst.Call):
            return
        if self.full_name(value.func) in CLIENTS:
            self.clients.update(targets)
        if "trimaran.Server" in self.imported(value.func):
            self.ours.update(targets)
        elif self.full_name(value.func) in SERVERS:
            self.servers.update(targets)
            moved = [
                arg.with_changes(keyword=cst.Name(option.partition(":")[2] or keyword))
                for arg in value.args
                if (keyword := "" if arg.keyword is None else arg.keyword.value)
                and (option := OPTIONS["Server"].get(keyword, "")).startswith("run")
            ]
            self.run_options.update(dict.fromkeys(targets, moved))
        elif _text(value.func) in self._makers:
            self.servers.update(targets)


@final
class _Rewrite(_Named, cst.CSTTransformer):
    def __init__(self, survey: _Survey) -> None:
        super().__init__()
        self._survey = survey
        self.needed: set[_Import] = set()
        self.kept_names: set[str] = set()
        """Full names that stay, so that their import stays."""
        self.left: list[Leftover] = []
        self._annotations = 0
        self._skipped: set[cst.CSTNode] = set()

    def _leave(self, node: cst.CSTNode, text: str) -> None:
        self.left.append(Leftover(self.line(node), " ".join(text.split())))

    # Names

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if isinstance(node.names, cst.ImportStar) and node.module is not None and is_foreign(_text(node.module)):
            self._leave(node, f"{_text(node)}: import each name by itself, and run this again")
        return False

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self._annotations += 1

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        self._annotations -= 1
        return updated_node

    def _replaced(self, node: cst.Name | cst.Attribute) -> cst.Name | None:
        """Our name for one of theirs, and the import that it needs. Without one, it stays and is reported."""
        full = self.full_name(node)
        if full is None:
            return None
        if full in _TYPE_MODULES:
            ours: tuple[str, str] | None = ("trimaran", "types")
        else:
            ours = replacement(full, is_annotation=self._annotations > 0)
        if ours is None:
            self._keep(node, full)
            return None
        # An alias of the author's stays what it is.
        own = node.value if isinstance(node, cst.Name) and node.value != full.rpartition(".")[2] else None
        self.needed.add((ours[0], ours[1], own))
        return cst.Name(own or ours[1])

    def _keep(self, node: cst.CSTNode, full: str) -> None:
        self.kept_names.add(full)
        home, _, last = full.rpartition(".")
        reason = LEFT_CALLS.get(last) if home in SERVERS else None
        self._leave(node, f"{_text(node)}: {reason or left_reason(full)}")

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        full = self.full_name(node)
        if full is None or full in _TYPE_MODULES:
            return full is None
        return self._keeps_module(full)

    def _keeps_module(self, full: str) -> bool:
        """`types.TextContent` stays as it is, and `types` becomes ours; unless something else of `types` stays theirs."""
        return is_type(full) and full.rpartition(".")[0] in _TYPE_MODULES and not self._survey.keeps_types

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        full = self.full_name(original_node)
        if full is not None:
            if self._keeps_module(full):
                return updated_node
            return self._replaced(original_node) or updated_node
        if (
            original_node.attr.value in ("settings", "session_manager")
            and _text(original_node.value) in self._survey.servers
        ):
            self._leave(original_node, f"{_text(original_node)}: {LEFT_CALLS[original_node.attr.value]}")
        elif original_node.attr.value in PRIVATE_ATTRIBUTES:  # on whatever: nobody else has such names
            self._leave(original_node, f"{_text(original_node)}: {PRIVATE_ATTRIBUTES[original_node.attr.value]}")
        return self._context_attribute(original_node, updated_node)

    def _context_attribute(self, original: cst.Attribute, updated: cst.Attribute) -> cst.BaseExpression:
        base, _, path = _text(original).partition(".")
        if base in self._survey.answers and path == "data":
            return updated.with_changes(attr=cst.Name("content"))
        if base in self._survey.results and path == "structured_content":
            return updated.with_changes(attr=cst.Name("structured"))
        if base not in self._survey.contexts or not path:
            return updated
        if path in CONTEXT_ATTRIBUTES:
            return cst.parse_expression(f"{base}.{CONTEXT_ATTRIBUTES[path]}")
        if path in LEFT_CONTEXT and not self._is_inside_known(original):
            self._leave(original, f"{_text(original)}: {LEFT_CONTEXT[path]}")
        return updated

    def _is_inside_known(self, node: cst.Attribute) -> bool:
        return node in self._skipped

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._replaced(original_node) or updated_node

    def visit_Subscript(self, node: cst.Subscript) -> bool:
        return not self._has_no_parameters(node.value)

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        if self._has_no_parameters(original_node.value):
            return self._replaced(cast("cst.Name", original_node.value)) or updated_node
        return updated_node

    def _has_no_parameters(self, node: cst.CSTNode) -> bool:
        """Whether it is a class of theirs whose type parameters ours has not: it has none, or others."""
        full = self.full_name(node)
        return full is not None and (replacement(full) or ("", ""))[1] in ("Context", "Server")

    # Calls

    def visit_Call(self, node: cst.Call) -> None:
        self._skip_known_parts(node.func)

    def visit_Attribute_value(self, node: cst.Attribute) -> None:
        path = _text(node).partition(".")[2]
        if path in CONTEXT_ATTRIBUTES or path in LEFT_CONTEXT:
            self._skip_known_parts(node)

    def _skip_known_parts(self, node: cst.CSTNode) -> None:
        while isinstance(node, cst.Attribute):
            path = _text(node).partition(".")[2]
            if path in CONTEXT_ATTRIBUTES or path in LEFT_CONTEXT or _session_notice(path):
                inner = node.value
                while isinstance(inner, cst.Attribute):
                    self._skipped.add(inner)
                    inner = inner.value
            node = node.value

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        full = self.full_name(original_node.func)
        if full is not None:
            return self._construct(full, original_node, updated_node)
        func = original_node.func
        if isinstance(func, cst.Attribute):
            if _text(func.value) in self._survey.servers:
                return self._server_method(func.attr.value, original_node, updated_node)
            if _text(func.value) in self._survey.contexts:
                return self._context_method(func.attr.value, updated_node)
            if _text(func.value) in self._survey.clients:
                return _client_method(func.attr.value, updated_node)
            return self._session_method(func, updated_node)
        return updated_node

    def _session_method(self, func: cst.Attribute, updated: cst.Call) -> cst.Call:
        context, _, path = _text(func).partition(".")
        if context not in self._survey.contexts:
            return updated
        if (notice := _session_notice(path)) is not None:
            args = [arg if _string(arg.value) else _arg(None, f"str({_text(arg.value)})") for arg in updated.args]
            return updated.with_changes(func=cst.parse_expression(f"{context}.server.notify.{notice}"), args=args)
        return updated.with_changes(args=_tidy([a for a in updated.args if _keyword(a) != "related_request_id"]))

    def leave_Await(self, original_node: cst.Await, updated_node: cst.Await) -> cst.BaseExpression:
        call = original_node.expression
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
            return updated_node
        receiver, _, path = _text(call.func).partition(".")
        if receiver in self._survey.contexts and _session_notice(path) is not None:
            return updated_node.expression  # ours is no coroutine
        if receiver in self._survey.clients and path == "read_resource":
            return cst.Attribute(
                updated_node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]), cst.Name("contents")
            )
        return updated_node

    def _construct(self, full: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        if full in SERVERS:
            return updated.with_changes(args=self._server_args(original, updated))
        last = full.rpartition(".")[2]
        if is_type(full):
            args = [
                arg
                for arg in (_snake(arg) for arg in updated.args)
                if not (last in _CONTENT and arg.keyword is not None and arg.keyword.value == "type")
            ]
            return updated.with_changes(args=_tidy(args))
        if last in ("Image", "Audio") and (replacement(full) or ("",))[0] == "trimaran.content":
            return self._media(last.lower(), original, updated)
        if last == "ToolResult":
            return self._tool_result(original, updated)
        if last == "Message" and full.startswith("fastmcp.prompts"):
            return self._message(updated)
        if last in ("UserMessage", "AssistantMessage"):
            return updated.with_changes(
                args=_tidy([arg.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT) for arg in updated.args])
            )
        return updated

    def _media(self, kind: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        parts = {arg.keyword.value: arg.value for arg in updated.args if arg.keyword is not None}
        form = _string(parts.get("format"))
        if set(parts) != {"data", "format"} or form is None:
            self._leave(original, f"{_text(original)}: write {kind}(data, mime_type)")
            return updated
        return updated.with_changes(args=_tidy([_arg(None, parts["data"]), _arg(None, f'"{kind}/{form.lower()}"')]))

    def _tool_result(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Theirs takes any value as its content; ours takes blocks."""
        parts = {_keyword(arg): arg.value for arg in updated.args}
        if not isinstance(parts.get("content", parts.get("")), cst.List) or len(parts) != len(updated.args):
            self._leave(original, f"{_text(original)}: write trimaran.content.structured(data, content)")
        return updated

    def _message(self, updated: cst.Call) -> cst.BaseExpression:
        roles = [_string(arg.value) for arg in updated.args if arg.keyword is not None and arg.keyword.value == "role"]
        args = [arg for arg in updated.args if arg.keyword is None or arg.keyword.value != "role"]
        args = [arg.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT) for arg in args]
        if roles and roles[0] is None:
            self.needed.add(("trimaran.content", "message", None))
            role = next(arg.value for arg in updated.args if arg.keyword is not None and arg.keyword.value == "role")
            return updated.with_changes(func=cst.Name("message"), args=_tidy([_arg(None, role), *args]))
        name = "assistant_message" if roles == ["assistant"] else "user_message"
        self.needed.add(("trimaran.content", name, None))
        return updated.with_changes(func=cst.Name(name), args=_tidy(args))

    def _server_args(self, original: cst.Call, updated: cst.Call) -> Sequence[cst.Arg]:
        positional = [arg for arg in updated.args if arg.keyword is None and not arg.star]
        args = [*positional[:1], *(_arg("instructions", arg.value) for arg in positional[1:2])]
        if not positional and not any(arg.keyword is not None and arg.keyword.value == "name" for arg in updated.args):
            args.insert(0, _arg(None, '"server"'))
        is_masked = any(
            arg.keyword is not None and arg.keyword.value == "mask_error_details" and _text(arg.value) == "True"
            for arg in updated.args
        )
        args += self._options("Server", [arg for arg in updated.args if arg.keyword is not None or arg.star], original)
        if not is_masked:
            # They tell the caller what went wrong; here the text of an unexpected error stays in the log.
            args.append(_arg("expose_internal_errors", "True"))
        return _tidy(args, updated.args)

    def _options(self, kind: str, args: Iterable[cst.Arg], original: cst.CSTNode) -> list[cst.Arg]:
        """Keywords of theirs as ours; those that mean nothing here are dropped or reported."""
        table, ours = OPTIONS[kind], list[cst.Arg]()
        for arg in args:
            keyword = None if arg.keyword is None else arg.keyword.value
            if keyword is None:
                ours.append(arg)
                continue
            option = table.get(keyword, "!Trimaran has no such option")
            if keyword == "enabled" and _text(arg.value) == "True":
                continue
            if option.startswith("!"):
                # It stays: a server that loses its `auth=` without a word would be open to anyone.
                self._leave(original, f"{keyword}={_text(arg.value)[:60]}: {option[1:]}")
                ours.append(arg)
            elif option == "=":
                ours.append(arg)
            elif option and not option.startswith("run"):
                ours.append(arg.with_changes(keyword=cst.Name(option)))
        return ours

    # Methods of a server

    def _server_method(self, name: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        if name == "run" or name in _SERVES:
            return self._run(name, original, updated)
        if name in _APPS:
            path = [arg for arg in updated.args if arg.keyword is None]
            args = [*path, *self._options("asgi", [a for a in updated.args if a.keyword is not None], original)]
            transport = _string(next((a.value for a in updated.args if _keyword(a) == "transport"), None))
            if _APPS[name] == "sse" or transport == "sse":
                args = _with_sse_path(args)
            return _method(updated, "asgi", args)
        if name in ("tool", "resource", "prompt"):
            return self._declare(name, original, updated)
        if name == "mount":
            return self._mount(original, updated)
        if name == "custom_route":
            args = [a for a in updated.args if a.keyword is None or a.keyword.value in ("path", "methods")]
            return updated.with_changes(args=_tidy(args))
        if name == "add_tool" and updated.args:
            return updated.with_changes(
                args=_tidy([updated.args[0], *self._options("tool", updated.args[1:], original)])
            )
        if name in LEFT_CALLS:
            self._leave(original, f"{_text(original.func)}: {LEFT_CALLS[name]}")
        return updated

    def _declare(self, kind: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        positional = [arg for arg in updated.args if arg.keyword is None]
        options = self._options(kind, [arg for arg in updated.args if arg.keyword is not None], original)
        if kind == "resource":
            uri = _string(positional[0].value) if positional else None
            if uri is not None and our_template(uri) != uri:
                positional[0] = _arg(None, repr(our_template(uri)).replace("'", '"'))
            return updated.with_changes(args=_tidy([*positional, *options]))
        if positional and isinstance(positional[0].value, (cst.SimpleString, cst.FormattedString)):
            return updated.with_changes(args=_tidy([_arg("name", positional[0].value), *options]))
        if positional and options:
            return _method(updated, f"add_{kind}", [*positional, *options])
        return updated.with_changes(args=_tidy([*positional, *options]))

    def _mount(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        values = {arg.keyword.value: arg.value for arg in updated.args if arg.keyword is not None}
        positional = [arg.value for arg in updated.args if arg.keyword is None]
        if positional and isinstance(positional[0], cst.SimpleString):  # the order of the first releases
            positional.reverse()
        server = values.get("server") or (positional[0] if positional else None)
        prefix = values.get("prefix") or values.get("namespace") or (positional[1] if len(positional) > 1 else None)
        if server is None:
            return updated
        for name in values.keys() - {"server", "prefix", "namespace"}:
            self._leave(original, f"{name}=: there is no such option of mount")
        args = [_arg(None, server), *([] if prefix is None else [_arg(None, prefix)])]
        return updated.with_changes(args=_tidy(args))

    def _run(self, name: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        server = _text(cst.ensure_type(original.func, cst.Attribute).value)
        args = self._options("run", updated.args, original)
        transport = next((a for a in args if a.keyword is None or a.keyword.value == "transport"), None)
        args = [arg for arg in args if arg is not transport]
        chosen = "stdio" if transport is None else _string(transport.value)
        chosen = _SERVES.get(name) or chosen
        present = {arg.keyword.value for arg in args if arg.keyword is not None}
        moved = [a for a in self._survey.run_options.get(server, ()) if a.keyword and a.keyword.value not in present]
        if chosen == "stdio":
            args = []
        elif chosen in _HTTP:
            kind = _arg(None, '"http"')
            if transport is not None and args:
                kind = kind.with_changes(comma=transport.comma)
            args = [kind, *args, *moved]
            if "port" not in {a.keyword.value for a in args if a.keyword is not None}:
                args.append(_arg("port", "8000"))  # theirs; ours is another
            if chosen == "sse":
                args = _with_sse_path(args)
        else:
            assert transport is not None
            self._leave(
                original, f'{_text(original)}: the transport must be "stdio" or "http", and only "http" takes options'
            )
            args = [transport.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT), *args, *moved]
        return _method(updated, "run" if name == "run" else "serve", args)

    # Methods of a Context

    def _context_method(self, name: str, updated: cst.Call) -> cst.BaseExpression:
        keywords = {
            "elicit": {"response_type": "schema"},
            "sample": {"system_prompt": "system"},
        }.get(name, {"logger_name": "logger"})
        args = [_renamed(arg, keywords) for arg in updated.args]
        if name == "log":
            by_name = {a.keyword.value: a for a in args if a.keyword is not None}
            if "level" in by_name and ("message" in by_name or len(args) > len(by_name)):
                data = by_name.get("message") or next(a for a in args if a.keyword is None)
                rest = [by_name["logger"]] if "logger" in by_name else []
                args = [_arg(None, by_name["level"].value), _arg(None, data.value), *rest]
        if name == "elicit":
            args = [
                arg
                for arg in args
                if not (arg.keyword and arg.keyword.value == "schema" and _text(arg.value) == "None")
            ]
        return updated.with_changes(args=_tidy(args))


def _keyword(arg: cst.Arg) -> str:
    return "" if arg.keyword is None else arg.keyword.value


def _with_sse_path(args: Sequence[cst.Arg]) -> list[cst.Arg]:
    """The arguments of a server that speaks HTTP+SSE. Their `path` is that of the stream; ours that of streamable HTTP."""
    if any(_keyword(arg) == "sse_path" for arg in args):
        return list(args)
    if any(_keyword(arg) == "path" for arg in args):
        return [_renamed(arg, {"path": "sse_path"}) for arg in args]
    return [*args, _arg("sse_path", '"/sse"')]


def _renamed(arg: cst.Arg, keywords: dict[str, str]) -> cst.Arg:
    name = None if arg.keyword is None else keywords.get(arg.keyword.value)
    return arg if name is None else arg.with_changes(keyword=cst.Name(name))


def _snake(arg: cst.Arg) -> cst.Arg:
    if arg.keyword is None:
        return arg
    name = (
        "meta" if arg.keyword.value == "_meta" else _CAMEL.sub(lambda match: "_" + match[1].lower(), arg.keyword.value)
    )
    return arg.with_changes(keyword=cst.Name(name))


def _session_notice(path: str) -> str | None:
    """Our method of `server.notify` for `session.send_...` of a Context."""
    session, _, method = path.removeprefix("request_context.").partition(".")
    return SESSION_NOTICES.get(method) if session == "session" else None


def _client_method(name: str, updated: cst.Call) -> cst.Call:
    if name == "call_tool" and not any(_keyword(arg) == "raise_on_error" for arg in updated.args):
        return updated.with_changes(args=_tidy([*updated.args, _arg("raise_on_error", "True")]))
    if name in ("list_tools", "list_resources", "list_resource_templates", "list_prompts"):
        return _method(updated, f"{name}_all", updated.args)  # ours without `_all` reads one page
    return updated


def _tidy(args: Sequence[cst.Arg], before: Sequence[cst.Arg] = ()) -> Sequence[cst.Arg]:
    """The arguments with commas between them, after some of those `before` were dropped or others were added.

    Spread over lines, they stay so, and the closing bracket stays where it was.
    """
    if not args:
        return args
    closing = before[-1] if before else args[-1]
    if closing not in args and "\n" in _text(closing):
        args = [
            *args[:-1],
            args[-1].with_changes(comma=closing.comma, whitespace_after_arg=closing.whitespace_after_arg),
        ]
    breaks = [arg.comma for arg in args if isinstance(arg.comma, cst.Comma) and "\n" in _text(arg.comma)]
    between = max(breaks, key=lambda comma: len(_text(comma)), default=_COMMA)
    last = args[-1]
    tidied: list[cst.Arg] = []
    for arg in args[:-1]:
        comma = arg.comma
        if not isinstance(comma, cst.Comma):  # it was the last one, and the closing bracket follows its white space
            last = last.with_changes(whitespace_after_arg=arg.whitespace_after_arg)
            arg = arg.with_changes(comma=between, whitespace_after_arg=cst.SimpleWhitespace(""))
        elif "\n" in _text(comma) and len(_text(comma)) < len(_text(between)):
            last = last.with_changes(comma=comma)
            arg = arg.with_changes(comma=between)
        tidied.append(arg)
    is_spread = isinstance(last.comma, cst.Comma) and "\n" in _text(last.comma)
    return [*tidied, last if is_spread else last.with_changes(comma=cst.MaybeSentinel.DEFAULT)]


def _method(call: cst.Call, name: str, args: Sequence[cst.Arg]) -> cst.Call:
    func = cst.ensure_type(call.func, cst.Attribute)
    space = call.whitespace_before_args if args else cst.SimpleWhitespace("")
    return call.with_changes(
        func=func.with_changes(attr=cst.Name(name)), args=_tidy(args), whitespace_before_args=space
    )


@final
class _Imports(cst.CSTTransformer):
    """Drop their imports that nothing uses, and put ours in the place of the first."""

    def __init__(self, needed: set[_Import], kept_names: set[str]) -> None:
        super().__init__()
        self._kept_names = kept_names
        self._missing = sorted(needed, key=lambda item: (item[0], item[1].lower(), item[2] or ""))

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine] | cst.RemovalSentinel:
        body = [self._trim(statement) for statement in updated_node.body]
        if body == list(updated_node.body) and not any(_is_theirs(statement) for statement in updated_node.body):
            return updated_node
        lines = [cst.SimpleStatementLine([statement]) for statement in self._ours()]
        rest = [statement for statement in body if statement is not None]
        if rest:
            lines.append(updated_node.with_changes(body=rest, leading_lines=()))
        if not lines:
            return cst.RemovalSentinel.REMOVE
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        if not rest:
            lines[-1] = lines[-1].with_changes(trailing_whitespace=updated_node.trailing_whitespace)
        return cst.FlattenSentinel(lines)

    def _ours(self) -> list[cst.ImportFrom]:
        modules: dict[str, list[cst.ImportAlias]] = {}
        for module, name, alias in self._missing:
            target = None if alias is None else cst.AsName(cst.Name(alias))
            modules.setdefault(module, []).append(cst.ImportAlias(cst.Name(name), asname=target))
        self._missing = []
        return [
            cst.ImportFrom(cast("cst.Attribute", cst.parse_expression(module)), names)
            for module, names in modules.items()
        ]

    def _trim(self, statement: cst.BaseSmallStatement) -> cst.BaseSmallStatement | None:
        if not _is_theirs(statement):
            return statement
        if isinstance(statement, cst.ImportFrom):
            if isinstance(statement.names, cst.ImportStar):
                return statement
            home = _text(cast("cst.CSTNode", statement.module))
            names = [alias for alias in statement.names if self._is_kept(f"{home}.{_text(alias.name)}")]
            closing = statement.names[-1].comma  # it has the white space before a bracket
        else:
            imports = cst.ensure_type(statement, cst.Import)
            names = [a for a in imports.names if not is_foreign(_text(a.name)) or self._is_kept(_text(a.name))]
            closing = cst.MaybeSentinel.DEFAULT
        if not names:
            return None
        names[-1] = names[-1].with_changes(comma=closing)
        return statement.with_changes(names=names)

    def _is_kept(self, name: str) -> bool:
        return any(full == name or full.startswith(name + ".") for full in self._kept_names)


def _is_theirs(statement: cst.BaseSmallStatement) -> bool:
    if isinstance(statement, cst.Import):
        return any(is_foreign(_text(alias.name)) for alias in statement.names)
    return (
        isinstance(statement, cst.ImportFrom)
        and not statement.relative
        and statement.module is not None
        and is_foreign(_text(statement.module))
    )
