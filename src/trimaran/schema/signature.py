"""Compile a function's signature, once, into a schema for its arguments and a fast way to read them.

Reading has two roads. The fast one is a single msgspec decode into a struct made for this signature, which accepts
nothing the advertised schema refuses. Whatever it refuses takes the slow one, where the schema decides:

    JSON -> judge -> [refused: repair -> judge] -> whole floats as ints -> build

Extra arguments are ignored and missing ones take the function's defaults (C3). A failure is an `ArgumentError`
written for the model that made the call. A signature that cannot be called by name is refused when it is declared.
Nothing here calls the function.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
)
from typing import Annotated, Any, Final, ForwardRef, NoReturn, TypeVar, cast, final, get_args, get_origin

import msgspec

from trimaran.errors import DeclarationError

from ._annotations import MISSING, Notes, is_field_info, is_union, peel
from ._decode import Natives
from .argument_errors import ArgumentError, refuse
from .convert import integral, split_reason
from .docstring import Doc, parse_docstring
from .repair import repair
from .type_schemas import Describer, described
from .validate import Schema, Validator, Violation, check_object_schema

M = TypeVar("M")
_asdict: Final = msgspec.structs.asdict
_STREAMS: Final = frozenset((AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterator))
_SILENT: Final = (None, type(None), Any, object, NoReturn, typing.Never, inspect.Signature.empty)
_ATOMS: Final = frozenset((str, int, float, bool, bytes, type(None), tuple, frozenset))


@final
class _Parameter(msgspec.Struct):
    name: str
    key: str
    annotation: Any
    default: Any
    factory: Callable[[], Any] | None
    description: str | None

    @property
    def is_required(self) -> bool:
        return self.default is MISSING and self.factory is None


@final
class ExplicitArguments:
    """Reads arguments by a schema that the author wrote; clients see exactly this dict.

    Raises:
        DeclarationError: the schema is invalid or its root is not an object.
    """

    __slots__ = ("_validator", "input_schema")

    def __init__(self, input_schema: Schema, *, owner: str = "the input schema") -> None:
        check_object_schema(input_schema, owner)
        self.input_schema: Schema = input_schema
        self._validator = Validator(input_schema)

    def arguments(self, raw: msgspec.Raw | bytes, *, notes: list[str] | None = None) -> dict[str, object]:
        """The arguments in `raw`, checked and, if necessary, repaired; `notes` collects the repairs."""
        return _judge(_decoded(raw), self._validator, self.input_schema, notes)

    def arguments_from(self, value: object, *, notes: list[str] | None = None) -> dict[str, object]:
        """The same, of arguments already decoded."""
        return _judge(value, self._validator, self.input_schema, notes)


@final
class Signature:
    """A compiled signature; `compile_signature` makes it. It is immutable in use and safe to share."""

    __slots__ = (
        "_decode",
        "_struct",
        "_validator",
        "context_params",
        "description",
        "input_schema",
        "name",
        "output_schema",
    )

    def __init__(
        self,
        name: str,
        *,
        parameters: list[_Parameter],
        context_params: tuple[str, ...],
        doc: Doc,
        output_schema: Schema | None,
    ) -> None:
        self.name: str = name
        self.context_params: tuple[str, ...] = context_params
        self.description: str | None = doc.summary or None
        self.output_schema: Schema | None = output_schema
        self.input_schema: Schema = _input_schema(name, parameters)
        natives = Natives()
        fields = [_field(parameter, natives) for parameter in parameters]
        renames = {parameter.name: parameter.key for parameter in parameters if parameter.key != parameter.name}
        self._struct = msgspec.defstruct("Arguments", fields, kw_only=True, gc=False, rename=renames or None)
        self._decode: Callable[[Any], Any] = msgspec.json.Decoder(self._struct, dec_hook=natives.hook).decode
        # A pattern or a hand-written keyword may not compile, and the author should hear of it now.
        self._validator = Validator(self.input_schema) if natives.needs_schema else None

    def arguments(self, raw: msgspec.Raw | bytes, *, notes: list[str] | None = None) -> dict[str, object]:
        """The keyword arguments in `raw`, a JSON object; `notes` collects the repairs.

        Raises:
            ArgumentError: they do not fit the schema.
        """
        try:
            return _asdict(self._decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._slowly(_decoded(raw), notes)

    def arguments_from(self, value: object, *, notes: list[str] | None = None) -> dict[str, object]:
        """The same, of arguments already decoded from JSON."""
        # By way of bytes, so that both doors accept the same: NaN, lone surrogates and depth are settled there.
        try:
            raw = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise refuse([Violation("$", f"the arguments are not JSON: {error}")], self.input_schema) from None
        return self.arguments(raw, notes=notes)

    def _slowly(self, value: Any, notes: list[str] | None) -> dict[str, Any]:
        if self._validator is None:
            self._validator = Validator(self.input_schema)
        judged = _judge(value, self._validator, self.input_schema, notes)
        if judged is not value:  # unrepaired arguments fail as they did
            try:
                return _asdict(self._decode(msgspec.json.encode(judged)))
            except msgspec.DecodeError:
                pass
        try:
            return _asdict(self._decode(msgspec.json.encode(integral(judged))))
        except msgspec.ValidationError as error:
            # The schema cannot say everything the type does: a date that is no date, a model's own validator.
            violation = Violation(*split_reason(error))
            raise refuse([violation], self.input_schema) from None


def compile_signature(
    fn: Callable[..., object],
    *,
    context_types: tuple[type, ...] = (),
    is_content: Callable[[object], bool] = lambda annotation: False,
    skip: Collection[str] = (),
    name: str | None = None,
    returns: object = MISSING,
) -> Signature:
    """Compile the signature of a function, method, partial or callable object.

    Args:
        context_types: parameters annotated with one of these, and one called `ctx` without an annotation, are left
            out of the schema and named in `context_params`.
        is_content: whether a return annotation is ready content, which has no output schema.
        skip: parameters the caller fills in itself.
        name: the function's name in messages.
        returns: replaces the return annotation.

    Raises:
        DeclarationError: it cannot be called with named JSON arguments; the message says what to write instead.
    """
    inner, fixed = _unwrap(fn)
    label = name or getattr(inner, "__qualname__", None) or type(fn).__qualname__
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"the signature of {label} cannot be read ({error}): wrap it in a function") from None
    _check_bound(parameters, inner, label)
    doc = parse_docstring(_docstring(fn, inner))
    hints = _Hints(inner)
    visible: list[_Parameter] = []
    context_params: list[str] = []
    for parameter in parameters.values():
        if parameter.name in skip or parameter.name in fixed:
            continue
        hint = hints.get(parameter.name)
        if hints.is_context(parameter.name, context_types):
            context_params.append(parameter.name)
            continue
        _check_callable(parameter, label)
        if isinstance(hint, str | ForwardRef):
            raise DeclarationError(
                f"the annotation {_text(hint)!r} of parameter {parameter.name!r} of {label} cannot be resolved: "
                "import or define that name at module level, outside any TYPE_CHECKING block"
            )
        visible.append(_parameter(parameter, hint, doc))
    annotation = hints.get("return") if returns is MISSING else returns
    is_stream = inspect.isasyncgenfunction(inner) and returns is MISSING
    output = None if is_stream or _is_silent(annotation, is_content) else _output_schema(annotation, label)
    return Signature(
        label,
        parameters=visible,
        context_params=tuple(context_params),
        doc=doc,
        output_schema=output,
    )


def inspect_handler(fn: Callable[..., object], context_types: tuple[type, ...]) -> tuple[tuple[str, ...], str | None]:
    """The context parameters and the docstring of a function whose schema is not derived."""
    inner, _ = _unwrap(fn)
    hints = _Hints(inner)
    contexts = tuple(n for n in inspect.signature(fn).parameters if hints.is_context(n, context_types))
    return contexts, parse_docstring(_docstring(fn, inner)).summary or None


def markers_of(fn: Callable[..., object], kind: type[M]) -> dict[str, M]:
    """The parameters that an object of this kind marks: as the default, or inside `Annotated[...]`."""
    inner, fixed = _unwrap(fn)
    hints: _Hints | None = None
    markers: dict[str, M] = {}
    for name, parameter in inspect.signature(fn).parameters.items():
        if isinstance(parameter.default, kind):
            markers[name] = parameter.default
        elif parameter.annotation is not parameter.empty and name not in fixed:
            hints = hints or _Hints(inner)
            mark = next((note for note in get_args(hints.get(name))[1:] if isinstance(note, kind)), None)
            if mark is not None:
                markers[name] = mark
    return markers


def _check_bound(parameters: Mapping[str, inspect.Parameter], inner: Any, label: str) -> None:
    """Refuse a method without its object: a client would be asked for `self`."""
    first = next(iter(parameters.values()), None)
    if (
        not inspect.isfunction(inner)
        or first is None
        or first.name not in ("self", "cls")
        or first.annotation is not inspect.Parameter.empty
    ):
        return
    owner, _, method = getattr(inner, "__qualname__", "").rpartition("<locals>.")[2].rpartition(".")
    if owner:
        raise DeclarationError(
            f"{label} is a method, and nothing says of which {owner}: declare that of an object, as in "
            f"server.add_tool({owner}().{method})"
        )


def _unwrap(fn: Any) -> tuple[Any, set[str]]:
    """The function whose annotations count, and the keyword arguments a partial has already filled in."""
    fixed: set[str] = set()
    while isinstance(fn, functools.partial):
        fixed.update(cast("functools.partial[Any]", fn).keywords)
        fn = cast("functools.partial[Any]", fn).func
    if not inspect.isroutine(fn) and not isinstance(fn, type):
        fn = type(fn).__call__
    fn = inspect.unwrap(fn)
    return getattr(fn, "__func__", fn), fixed


def _docstring(fn: Any, inner: Any) -> str | None:
    """The docstring of a callable; for an object, its own, that of its `__call__`, or that of its class."""
    if inspect.isroutine(fn):
        return inspect.getdoc(fn)
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[Any]", fn).func
    if not isinstance(fn, type) and (own := getattr(fn, "__dict__", {}).get("__doc__")):
        return inspect.cleandoc(own)  # a decorator that is a class has copied it there
    text = inspect.getdoc(inner)
    if isinstance(fn, type) or inspect.isroutine(fn) or (text and text != type.__call__.__doc__):  # every class's
        return text
    about = type(fn).__dict__.get("__doc__")
    # A dataclass writes its own signature there.
    return inspect.cleandoc(about) if about and not about.startswith(f"{type(fn).__name__}(") else None


@final
class _Hints:
    """The annotations of a function, resolved where possible; the others stay text."""

    def __init__(self, fn: Any) -> None:
        self._fn = fn
        if isinstance(fn, type):
            fn = fn.__init__
        self._raw: dict[str, Any] = getattr(fn, "__annotations__", {})
        try:
            self._resolved: dict[str, Any] | None = typing.get_type_hints(fn, include_extras=True)
        except Exception:  # a NameError most often, but an annotation may be any expression
            self._resolved = None

    def get(self, name: str) -> Any:
        if name not in self._raw:
            return Any
        if self._resolved is not None:
            return self._resolved[name]
        return self._decode_one(self._raw[name])

    def is_context(self, name: str, context_types: tuple[type, ...]) -> bool:
        """Whether a parameter takes the context: by its annotation, or, as in a lambda, by being called `ctx`."""
        if name not in self._raw:
            return name == "ctx" and bool(context_types)
        return _is_context(self.get(name), context_types)

    def _decode_one(self, raw: Any) -> Any:
        def holder() -> None: ...

        holder.__annotations__ = {"it": raw}
        try:
            return typing.get_type_hints(holder, self._globals(), self._locals(), include_extras=True)["it"]
        except Exception:
            return raw

    def _globals(self) -> dict[str, Any]:
        return getattr(self._fn, "__globals__", {})

    def _locals(self) -> dict[str, Any]:
        """Names the function closes over, and those of the frames that are declaring it right now."""
        # Python before 3.12.4 does not know the T of `def echo[T]`, if annotations are strings.
        names: dict[str, Any] = {
            parameter.__name__: parameter for parameter in getattr(self._fn, "__type_params__", ())
        }
        frame = inspect.currentframe()
        while frame is not None:
            if frame.f_globals is self._globals() and frame.f_locals is not frame.f_globals:
                names = {**frame.f_locals, **names}
            frame = frame.f_back
        code = getattr(self._fn, "__code__", None)
        for name, cell in zip(
            getattr(code, "co_freevars", ()), getattr(self._fn, "__closure__", None) or (), strict=False
        ):
            try:
                names[name] = cell.cell_contents
            except ValueError:  # not yet bound
                continue
        return names


def _text(hint: Any) -> str:
    return hint.__forward_arg__ if isinstance(hint, ForwardRef) else str(hint)


def _is_context(hint: Any, context_types: tuple[type, ...]) -> bool:
    if isinstance(hint, str | ForwardRef):
        return _reads_as_context(_text(hint))
    core, _ = peel(hint)
    if is_union(core):
        members = [member for member in get_args(core) if member is not type(None)]
        return len(members) == 1 and _is_context(members[0], context_types)
    core = get_origin(core) or core
    return isinstance(core, type) and issubclass(core, context_types)


def _reads_as_context(text: str) -> bool:
    """Whether an annotation that cannot be resolved names a context: its import is under TYPE_CHECKING."""
    text = text.strip().strip("'\"")
    for part in text.split("|"):
        part = part.strip().strip("'\"")
        head, bracket, rest = part.partition("[")
        wrapper = head.rpartition(".")[2]
        if wrapper in ("Optional", "Annotated", "Union") and bracket:
            if _reads_as_context(rest.rstrip("]").split(",", 1)[0]):
                return True
        elif wrapper.endswith("Context"):
            return True
    return False


def _check_callable(parameter: inspect.Parameter, label: str) -> None:
    name = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise DeclarationError(f"{label} takes *{name}, but arguments come by name: write `{name}: list[...]`")
    if parameter.kind is parameter.VAR_KEYWORD:
        raise DeclarationError(
            f"{label} takes **{name}, which no schema can list: name the parameters, or write `{name}: dict[str, ...]`"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise DeclarationError(
            f"parameter {name!r} of {label} is positional-only: remove the `/`, arguments come by name"
        )
    if name.startswith("_"):
        raise DeclarationError(
            f"parameter {name!r} of {label} begins with an underscore, which reads as private: rename it to "
            f"{name.lstrip('_')!r}"
        )


def _parameter(parameter: inspect.Parameter, hint: Any, doc: Doc) -> _Parameter:
    default = MISSING if parameter.default is parameter.empty else parameter.default
    if is_field_info(default):
        hint, default = Annotated[hint, default], MISSING
    notes = Notes.read(peel(hint)[1])
    factory = None
    if default is MISSING:
        default, factory = notes.default, notes.factory
    description = notes.description or doc.params.get(parameter.name)
    return _Parameter(parameter.name, notes.alias or parameter.name, hint, default, factory, description)


def _input_schema(name: str, parameters: list[_Parameter]) -> Schema:
    describer = Describer("input")
    properties: dict[str, Schema] = {}
    for parameter in parameters:
        try:
            shape = describer.describe(parameter.annotation)
        except DeclarationError as error:
            raise DeclarationError(f"parameter {parameter.name!r} of {name}: {error}") from error
        if parameter.description:
            shape = described(shape, parameter.description)
        properties[parameter.key] = describer.defaulted(shape, parameter.default)
    schema: Schema = {"type": "object", "properties": properties}
    required = [parameter.key for parameter in parameters if parameter.is_required]
    if required:
        schema["required"] = required
    return describer.close(schema)


def _output_schema(annotation: Any, label: str) -> Schema:
    describer = Describer("output")
    try:
        return describer.close(describer.describe(annotation))
    except DeclarationError as error:
        raise DeclarationError(f"the return annotation of {label}: {error}") from error


def _is_silent(annotation: Any, is_content: Callable[[Any], bool]) -> bool:
    """Whether a return annotation promises no structure."""
    if isinstance(annotation, str | ForwardRef):
        # Unresolvable, so most likely a content type imported for the type checker only.
        return True
    core, _ = peel(annotation)
    return core in _SILENT or (get_origin(core) or core) in _STREAMS or is_content(annotation)


def _field(parameter: _Parameter, natives: Natives) -> Any:
    native = natives.native(parameter.annotation)
    if parameter.is_required:
        return parameter.name, native
    if parameter.factory is not None:
        return parameter.name, native, msgspec.field(default_factory=parameter.factory)
    default = parameter.default
    if type(default) in _ATOMS:
        return parameter.name, native, default
    if isinstance(default, list | dict | set | bytearray):
        # Python would share one default among all calls; a server's calls have nothing to share.
        from copy import deepcopy

        shared: Any = cast("Any", default)
        return parameter.name, native, msgspec.field(default_factory=lambda: deepcopy(shared))
    return parameter.name, native, msgspec.field(default_factory=lambda: default)


def _decoded(raw: msgspec.Raw | bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = f"the arguments are not valid JSON: {error}"
        raise ArgumentError(reason, [Violation("$", reason)]) from None


def _judge(value: Any, validator: Validator, schema: Schema, notes: list[str] | None) -> dict[str, Any]:
    if validator.is_valid(value):
        return value
    if isinstance(value, dict):
        value, repairs = repair(cast("dict[str, Any]", value), schema)
        if repairs and validator.is_valid(value):
            if notes is not None:
                notes += repairs
            return value
    # A part that could be repaired is not the fault.
    raise refuse(validator.errors(cast("object", value)), schema)
