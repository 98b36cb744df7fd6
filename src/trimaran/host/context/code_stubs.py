"""Write tools as Python functions: a name, a signature, types and a sentence, for a model that writes code.

Pure. `code.py` runs the code. A schema that Python's types cannot express becomes the nearest type that contains it, and `Any` at
the end: the server checks the arguments anyway.

    async def mail__send(to: str, subject: str, cc: list[str] = ...) -> MailSendResult:
        "Send an email."
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from trimaran.types import Tool

_DEEPEST: Final = 4  # levels of nested types; what is below is `Any`
_MOST_FIELDS: Final = 30  # of one type; a stub that is longer than the result it describes helps nobody
_MOST_CLASSES: Final = 30  # of one function; references make a tree of a thousand from a schema of ten lines
_LONGEST_STUB: Final = (
    6000  # characters; the longest of 1,095 published tools has 5,664. A longer one goes without types, or parameters
)
_MOST_CHOICES: Final = 12  # of a Literal
_LONGEST_CHOICE: Final = 40
_LONGEST_SENTENCE: Final = 200
_PLAIN: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "dict[str, Any]",
    "array": "list[Any]",
}
_NO_IDENTIFIER: Final = re.compile(r"\W", re.ASCII)
_SENTENCE: Final = re.compile(r".+?(?:[.!?](?=\s|$)|$)", re.DOTALL)


class ToolFunction(NamedTuple):
    """A tool as a function of Python."""

    name: str
    arguments: Mapping[str, str]
    """The tool's own name of each parameter, in the order of the signature."""
    stub: str


def function_names(tools: Iterable[str]) -> dict[str, str]:
    """The names of functions for tools, no two alike: function -> tool. `mcp__my-mail__send` is `my_mail__send`."""
    names: dict[str, str] = {}
    for tool in tools:
        plain = _identifier(tool.removeprefix("mcp__"))
        name, number = plain, 2
        while name in names:
            name, number = f"{plain}_{number}", number + 1
        names[name] = tool
    return names


def _identifier(text: str) -> str:
    name = _NO_IDENTIFIER.sub("_", text) or "_"
    name = f"_{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) else name


def write_function(name: str, tool: Tool) -> ToolFunction:
    """The function of this name that stands for a tool."""
    schema: dict[str, Any] = tool.input_schema if isinstance(tool.input_schema, dict) else {}
    types = _Types(name, schema)
    properties = _mapping(schema.get("properties"))
    needed = schema.get("required")
    required = {str(argument) for argument in cast("list[Any]", needed)} if isinstance(needed, list) else set[str]()
    arguments: dict[str, str] = {}
    parameters: list[str] = []
    for argument in sorted(properties, key=lambda argument: argument not in required):
        parameter = _identifier(argument)
        while parameter in arguments:
            parameter += "_"
        arguments[parameter] = argument
        default = "" if argument in required else " = ..."
        parameters.append(f"{parameter}: {types.write(properties[argument], argument)}{default}")
    has_type = isinstance(tool.output_schema, dict)
    result_type, classes = (
        _Types(name, tool.output_schema, types.names).write_result() if has_type else ("Any", list[str]())
    )
    signature = f"async def {name}({', '.join(parameters)}) -> {result_type}:"
    sentence = f"    {_sentence(tool)!r}"
    stub = "\n".join([*types.classes, *classes, signature, sentence])
    if len(stub) > _LONGEST_STUB:
        plain = [f"{parameter}{'' if argument in required else ' = ...'}" for parameter, argument in arguments.items()]
        stub = f"async def {name}({', '.join(plain)}) -> Any:\n{sentence}"
    if len(stub) > _LONGEST_STUB:
        stub = f"async def {name}(**arguments) -> Any:\n{sentence}"
    return ToolFunction(name, arguments, stub)


def _sentence(tool: Tool) -> str:
    text = " ".join((tool.description or tool.title or tool.name)[: 4 * _LONGEST_SENTENCE].split())
    match = _SENTENCE.match(text)
    return (match[0] if match is not None else text)[:_LONGEST_SENTENCE]


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {str(key): item for key, item in list(cast("dict[Any, Any]", value).items())[:_MOST_FIELDS]}


class _Types:
    """The types of one schema. Objects with named fields become classes."""

    def __init__(self, function: str, schema: Any, used_names: Iterable[str] = ()) -> None:
        self._prefix = "".join(part[:1].upper() + part[1:] for part in function.split("_") if part)
        self._root = cast("dict[str, Any]", schema)
        self.names: set[str] = set(used_names)
        self._most_names = len(self.names) + _MOST_CLASSES
        self.classes: list[str] = []

    def write_result(self) -> tuple[str, list[str]]:
        """The type of the whole schema, and its classes. A result in the field `result` alone is that field (`ToolResult.data`)."""
        fields = _mapping(self._root.get("properties"))
        inner = fields["result"] if list(fields) == ["result"] else self._root
        return self.write(inner, "result"), self.classes

    def write(self, schema: Any, field: str, depth: int = 0) -> str:
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return "Any"
        part = cast("dict[str, Any]", schema)
        if isinstance(reference := part.get("$ref"), str):
            return self.write(self._resolve(reference), field, depth + 1)
        for key in ("anyOf", "oneOf"):
            if isinstance(part.get(key), list):
                return self._union(cast("list[Any]", part[key]), field, depth)
        if isinstance(part.get("enum"), list):
            return _literal(cast("list[Any]", part["enum"]))
        kind = part.get("type")
        if isinstance(kind, list):
            return self._union([{**part, "type": item} for item in cast("list[Any]", kind)], field, depth)
        if kind == "array" and isinstance(part.get("items"), dict):
            return f"list[{self.write(part['items'], field, depth + 1)}]"
        if "properties" in part and kind in (None, "object"):
            return self._class(part, field, depth)
        return _PLAIN.get(str(kind), "Any")

    def _union(self, choices: list[Any], field: str, depth: int) -> str:
        types = list(dict.fromkeys(self.write(choice, field, depth + 1) for choice in choices[:_MOST_CHOICES]))
        return "Any" if "Any" in types or not types else " | ".join(types)

    def _class(self, part: dict[str, Any], field: str, depth: int) -> str:
        fields = _mapping(part.get("properties"))
        if (
            not fields
            or len(self.names) >= self._most_names
            or any(not name.isidentifier() or keyword.iskeyword(name) for name in fields)
        ):
            return "dict[str, Any]"
        plain = self._prefix + "".join(word[:1].upper() + word[1:] for word in _identifier(field).split("_") if word)
        name, number = plain, 2
        while name in self.names:
            name, number = f"{plain}{number}", number + 1
        self.names.add(name)
        written = [f"    {key}: {self.write(value, key, depth + 1)}" for key, value in fields.items()]
        self.classes.append("\n".join([f"class {name}(TypedDict):", *written]))
        return name

    def _resolve(self, reference: str) -> Any:
        parts = reference.split("/")
        target: Any = self._root
        if parts[0] != "#":
            return None
        for part in parts[1:]:
            target = cast("dict[str, Any]", target).get(part) if isinstance(target, dict) else None
        return target


def _literal(choices: list[Any]) -> str:
    plain = [choice for choice in choices if choice is None or isinstance(choice, (str, int, bool))]
    if (
        len(plain) < len(choices)
        or len(plain) > _MOST_CHOICES
        or any(len(str(choice)) > _LONGEST_CHOICE for choice in plain)
    ):
        return "str" if all(isinstance(choice, str) for choice in choices) else "Any"
    return f"Literal[{', '.join(map(repr, plain))}]" if plain else "Any"
