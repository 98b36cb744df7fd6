"""Take annotations apart: the type inside the wrappers, its notes, its fields.

One reading for everybody: the describer (`_describe.py`), the decoder (`_decode.py`) and the signature compiler see
the same core, the same constraints and the same fields, so a schema and its decoder cannot disagree about them.
attrs, annotated-types and pydantic are recognised by shape and never imported.
"""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, ForwardRef, Literal, NewType, Self, TypeVar, cast, final, get_args, get_origin

import msgspec

from trimaran.errors import DeclarationError

from .docstring import Doc, parse_docstring

MISSING: Final = msgspec.UNSET
_WRAPPERS: Final = frozenset(
    wrapper
    for wrapper in (
        typing.Required,
        typing.NotRequired,
        typing.Final,
        typing.ClassVar,
        getattr(typing, "ReadOnly", None),
    )
    if wrapper is not None
)
_BOUNDS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
_NUMERIC: Final = frozenset(("gt", "ge", "lt", "le", "multiple_of"))


@final
class Notes(msgspec.Struct):
    """The metadata of an `Annotated`, of any library."""

    bounds: dict[str, Any] = {}
    """The constraints, by msgspec's names."""
    description: str | None = None
    title: str | None = None
    examples: list[Any] | None = None
    extra: dict[str, Any] = {}
    """Schema keywords the author wrote out."""
    tz: bool | None = None
    default: Any = MISSING
    factory: Callable[[], Any] | None = None
    alias: str | None = None
    is_msgspec: bool = True
    """Whether every constraint came in a `msgspec.Meta`, so that msgspec enforces it unaided."""
    needs_pydantic: bool = False
    """Whether something in it only pydantic can carry out, such as a validator function."""

    @classmethod
    def read(cls, metadata: list[Any]) -> Self:
        notes = cls()
        for item in metadata:
            notes._take(item)
        return notes

    def _take(self, item: Any) -> None:
        if isinstance(item, str):
            self.description = item
        elif isinstance(item, msgspec.Meta):
            self._take_meta(item)
        elif is_field_info(item):
            self._take_field_info(item)
        elif isinstance(documentation := getattr(item, "documentation", None), str):
            self.description = documentation
        elif any(hasattr(item, name) for name in _BOUNDS):
            self.is_msgspec = False
            self._take_bounds(item)
        elif type(item).__module__.partition(".")[0] == "pydantic":
            self.needs_pydantic = True
        elif type(item).__module__ == "annotated_types" and hasattr(item, "func"):
            raise DeclarationError(
                f"{item!r} cannot be written as JSON Schema: check the value in the function, or use ge=, min_length= "
                "or pattern="
            )

    def _take_meta(self, meta: msgspec.Meta) -> None:
        self._take_bounds(meta)
        self.description = meta.description or self.description
        self.title = meta.title or self.title
        self.examples = meta.examples or self.examples
        self.tz = meta.tz if meta.tz is not None else self.tz
        if meta.extra_json_schema:
            self.extra = {**self.extra, **meta.extra_json_schema}

    def _take_field_info(self, info: Any) -> None:
        self.description = info.description or self.description
        self.title = info.title or self.title
        self.examples = info.examples or self.examples
        extra: Any = info.json_schema_extra
        if isinstance(extra, dict):
            self.extra = {**self.extra, **cast("dict[str, Any]", extra)}
        alias = info.validation_alias if isinstance(info.validation_alias, str) else info.alias
        self.alias = alias or self.alias
        if type(info.default).__name__ != "PydanticUndefinedType" and info.default is not ...:
            self.default = info.default
        self.factory = info.default_factory or self.factory
        if info.discriminator is not None:
            self.needs_pydantic = True
        for item in info.metadata:
            # `Strict` asks for no more than JSON Schema already does.
            if not hasattr(item, "strict") or any(hasattr(item, name) for name in _BOUNDS):
                self._take(item)

    def _take_bounds(self, item: Any) -> None:
        for name in _BOUNDS:
            bound = getattr(item, name, None)
            if bound is None or (name == "min_length" and bound == 0):
                continue
            if name == "pattern":
                bound = getattr(bound, "pattern", bound)
            elif name in _NUMERIC and not isinstance(bound, int | float):
                raise DeclarationError(
                    f"the bound {name}={bound!r} cannot be written as JSON Schema, which compares numbers only: "
                    "check it in the function"
                )
            self.bounds = {**self.bounds, name: bound}

    def meta(self) -> msgspec.Meta:
        """The constraints as the `Meta` that makes msgspec enforce them."""
        return msgspec.Meta(**self.bounds, tz=self.tz)


@final
class RecordField(msgspec.Struct, frozen=True):
    name: str
    """The attribute and constructor name."""
    key: str
    """The name on the wire."""
    annotation: Any
    required: bool
    default: Any = MISSING
    is_hidden: bool = False
    """Computed by the class itself: encoded, never decoded."""
    sent: str | None = None
    """The name it is encoded under; None when it never is."""


@final
class Record(msgspec.Struct, frozen=True):
    """A class with fields: dataclass, TypedDict, NamedTuple, msgspec Struct or attrs class."""

    cls: type[Any]
    name: str
    fields: tuple[RecordField, ...]
    doc: Doc
    is_array: bool = False
    is_closed: bool = False
    omits_defaults: bool = False
    tag: tuple[str, str | int] | None = None
    needs_constructor: bool = False
    """Whether msgspec, which fills fields without calling `__init__`, would build it wrong."""


def peel(annotation: Any) -> tuple[Any, list[Any]]:
    """The type under its wrappers, and the metadata of every `Annotated` met on the way, innermost first."""
    metadata: list[Any] = []
    while True:
        if annotation is None:
            return type(None), metadata
        if hasattr(annotation, "__metadata__"):
            metadata = [*annotation.__metadata__, *metadata]
            annotation = annotation.__origin__
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif isinstance(annotation, TypeVar):
            constraints = annotation.__constraints__
            annotation = typing.Union[constraints] if constraints else annotation.__bound__ or Any  # noqa: UP007
        elif _is_wrapper(get_origin(annotation)):
            annotation = get_args(annotation)[0]
        elif annotation in _WRAPPERS or annotation is object:
            annotation = Any
        elif annotation is typing.LiteralString:
            annotation = str
        else:
            return annotation, metadata


def _is_wrapper(origin: Any) -> bool:
    if origin in _WRAPPERS:
        return True
    # Before 3.13 `ReadOnly` is known to typing_extensions only.
    extensions = sys.modules.get("typing_extensions")
    return origin is not None and origin is getattr(extensions, "ReadOnly", None)


def is_union(core: Any) -> bool:
    return get_origin(core) in (typing.Union, types.UnionType)


def is_enum(core: Any) -> bool:
    return isinstance(core, type) and issubclass(core, enum.Enum)


def is_alias(core: Any) -> bool:
    """Whether it was written `type Name = ...`, by the language or by typing_extensions."""
    return hasattr(get_origin(core) or core, "__value__") and not isinstance(core, type)


def alias_value(core: Any) -> Any:
    """The value of an alias, with its arguments, and with quoted names resolved in its module."""
    alias = get_origin(core) or core
    value = alias.__value__

    def holder() -> None: ...

    holder.__annotations__ = {"it": value}
    try:
        module = sys.modules.get(alias.__module__)
        value = typing.get_type_hints(holder, getattr(module, "__dict__", {}), include_extras=True)["it"]
    except NameError as error:
        raise DeclarationError(f"the type alias {alias.__name__} cannot be resolved: {error}") from None
    return _substitute(value, dict(zip(alias.__type_params__, get_args(core), strict=False)))


def is_pydantic(core: Any) -> bool:
    """Whether pydantic describes and builds it: a model, a pydantic dataclass, or one of its own types."""
    if "pydantic" not in sys.modules or not isinstance(core, type):
        return False
    return "__pydantic_core_schema__" in core.__dict__ or hasattr(core, "__get_pydantic_core_schema__")


def is_field_info(item: Any) -> bool:
    """Whether it is a result of `pydantic.Field(...)`."""
    kind = cast("type[Any]", type(item))
    return kind.__name__ == "FieldInfo" and kind.__module__ == "pydantic.fields"


def is_struct(core: Any) -> bool:
    return isinstance(core, type) and issubclass(core, msgspec.Struct)


def type_name(annotation: Any) -> str:
    """How to call an annotation in a message."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def record_of(core: Any) -> Record | None:
    """The fields of `core`, generic parameters filled in; None when it is no record."""
    cls: Any = get_origin(core) or core
    if not isinstance(cls, type):
        return None
    cls = cast("Any", cls)
    if is_struct(cls):
        return _struct(cls, core)
    if hasattr(cls, "__dataclass_fields__"):
        return _dataclass(cls, core)
    if hasattr(cls, "__attrs_attrs__"):
        return _attrs(cls, core)
    if hasattr(cls, "__required_keys__"):
        return _typed_dict(cls, core)
    if hasattr(cls, "_field_defaults"):
        return _named_tuple(cls, core)
    return None


def hints_of(cls: type[Any], core: Any) -> dict[str, Any]:
    """The resolved annotations of a class, with the arguments of a generic alias put in."""
    try:
        hints = _class_hints(cls)
    except NameError as error:
        raise DeclarationError(
            f"{cls.__qualname__} has an annotation that cannot be resolved ({error}): define or import that name in "
            f"module {cls.__module__}, outside any function and any TYPE_CHECKING block"
        ) from None
    parameters = getattr(cls, "__parameters__", ())
    if not parameters or not get_args(core):
        return hints
    filled = dict(zip(parameters, get_args(core), strict=False))
    return {name: _substitute(hint, filled) for name, hint in hints.items()}


def _class_hints(cls: type[Any]) -> dict[str, Any]:
    # Where annotations are strings, Python before 3.12.4 does not know the T of `class Box[T]`, and later ones prefer a T of the
    # module's.
    parameters = {p.__name__: p for base in reversed(cls.__mro__) for p in getattr(base, "__type_params__", ())}
    return typing.get_type_hints(cls, localns=parameters or None, include_extras=True)


def _substitute(annotation: Any, filled: Mapping[Any, Any]) -> Any:
    if isinstance(annotation, TypeVar):
        return filled.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters or isinstance(annotation, type):
        return annotation
    return annotation[tuple(filled.get(parameter, parameter) for parameter in parameters)]


def _doc(cls: type[Any]) -> Doc:
    text = cls.__dict__.get("__doc__")
    # dataclasses and namedtuples write their own signature there, which says nothing the fields do not.
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}("):
        return Doc()
    return parse_docstring(text)


def _name(cls: type[Any], core: Any) -> str:
    arguments = get_args(core)
    if not arguments:
        return cls.__name__
    return "_".join((cls.__name__, *(_plain_name(argument) for argument in arguments)))


def _plain_name(annotation: Any) -> str:
    text = getattr(annotation, "__name__", None) or str(annotation)
    return "".join(letter if letter.isalnum() else "_" for letter in text).strip("_")


def _struct(cls: type[Any], core: Any) -> Record:
    hints = hints_of(cls, core)
    config: Any = cls.__struct_config__
    fields = tuple(
        RecordField(
            field.name,
            field.encode_name,
            hints[field.name],
            field.required,
            MISSING if field.default is msgspec.NODEFAULT else field.default,
            sent=field.encode_name,
        )
        for field in msgspec.structs.fields(cls)
    )
    return Record(
        cls,
        _name(cls, core),
        fields,
        _doc(cls),
        is_array=config.array_like,
        is_closed=config.forbid_unknown_fields,
        omits_defaults=config.omit_defaults,
        tag=(config.tag_field, config.tag) if config.tag is not None else None,
    )


def _dataclass(cls: type[Any], core: Any) -> Record:
    import dataclasses

    hints = hints_of(cls, core)
    fields: list[RecordField] = []
    needs_constructor = False
    for field in cast("dict[str, dataclasses.Field[Any]]", cls.__dataclass_fields__).values():
        kind = cast("Any", field)._field_type.name
        if kind == "_FIELD_CLASSVAR":
            continue
        is_transient = kind == "_FIELD_INITVAR"
        needs_constructor |= is_transient or not field.init
        hint = hints[field.name]
        if isinstance(hint, dataclasses.InitVar):
            hint = cast("Any", hint).type
        has_default = field.default is not dataclasses.MISSING
        required = not has_default and field.default_factory is dataclasses.MISSING
        default = field.default if has_default else MISSING
        sent = None if is_transient else field.name
        fields.append(RecordField(field.name, field.name, hint, required, default, not field.init, sent))
    return Record(cls, _name(cls, core), tuple(fields), _doc(cls), needs_constructor=needs_constructor)


def _attrs(cls: type[Any], core: Any) -> Record:
    hints = hints_of(cls, core)
    fields: list[RecordField] = []
    needs_constructor = False
    for field in cast("Any", cls).__attrs_attrs__:
        alias: str = getattr(field, "alias", None) or field.name
        needs_constructor |= field.converter is not None or alias != field.name or not field.init
        default = field.default
        required = type(default).__name__ == "_Nothing"
        is_factory = hasattr(default, "factory") and hasattr(default, "takes_self")
        needs_constructor |= is_factory and default.takes_self
        visible_default = MISSING if required or is_factory else default
        # msgspec does not encode what attrs calls private.
        sent = None if field.name.startswith("_") else field.name
        fields.append(
            RecordField(alias, alias, hints.get(field.name, Any), required, visible_default, not field.init, sent)
        )
    return Record(cls, _name(cls, core), tuple(fields), _doc(cls), needs_constructor=needs_constructor)


def _typed_dict(cls: type[Any], core: Any) -> Record:
    hints = hints_of(cls, core)
    fields: list[RecordField] = []
    for name, hint in hints.items():
        wrapper = get_origin(hint)
        required = name in cast("Any", cls).__required_keys__
        # Under `from __future__ import annotations` __required_keys__ is computed from strings and misses these.
        if wrapper in (typing.Required, typing.NotRequired):
            required = wrapper is typing.Required
        fields.append(RecordField(name, name, hint, required, sent=name))
    return Record(cls, _name(cls, core), tuple(fields), _doc(cls))


def _named_tuple(cls: type[Any], core: Any) -> Record:
    hints = hints_of(cls, core)
    named = cast("Any", cls)
    fields = tuple(
        RecordField(
            name,
            name,
            hints.get(name, Any),
            name not in named._field_defaults,
            named._field_defaults.get(name, MISSING),
            sent=name,
        )
        for name in named._fields
    )
    return Record(cls, _name(cls, core), fields, _doc(cls), is_array=True, is_closed=True)


def unquoted(annotation: Any) -> Any:
    """Refuse a bare string: it has no module to resolve names in."""
    if isinstance(annotation, str | ForwardRef):
        name = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
        raise DeclarationError(
            f"the annotation {name!r} is text inside another type: give the type itself. A type that contains itself is a "
            f"class, or `type {name} = ...` from Python 3.12 on"
        )
    return annotation


Mode = Literal["input", "output", "form"]
"""The use of a schema: incoming values, outgoing values, or a form that a person fills in."""
