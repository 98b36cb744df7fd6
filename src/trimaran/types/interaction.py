"""A server's requests in the middle of a call: elicitation, sampling, roots; and how the modern era carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal

from msgspec import Raw, field

from .wire import Json, Wire

if TYPE_CHECKING:  # the type checkers' own copy of the module has defaults, which Python has from 3.13 on
    from typing_extensions import TypeVar

    Content = TypeVar("Content", default=Any)
else:
    from typing import TypeVar

    Content = TypeVar("Content")


class ElicitResult(Wire, Generic[Content]):
    """A person's answer: `content` holds the filled form if `accepted`, and None otherwise."""

    action: Literal["accept", "decline", "cancel"]
    content: Content = None  # pyright: ignore[reportAssignmentType] - declared as what it is after `accepted` was checked
    meta: dict[str, Json] | None = field(name="_meta", default=None)

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


class SamplingMessage(Wire):
    role: Literal["user", "assistant"]
    content: Json
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class CreateMessageResult(Wire):
    """The answer of the client's model. `content` is one block or a list of blocks, as mappings."""

    role: Literal["user", "assistant"]
    content: Json
    model: str
    stop_reason: str | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        blocks: list[Any] = self.content if isinstance(self.content, list) else [self.content]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        return "".join(b.get("text", "") for b in blocks if isinstance(b, dict) and b.get("type") == "text")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportUnknownArgumentType]


class Root(Wire):
    uri: str
    name: str | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class ListRootsResult(Wire):
    roots: list[Root]
    meta: dict[str, Json] | None = field(name="_meta", default=None)


class InputRequiredResult(Wire):
    """The end of one round of a modern call: what must be answered before the next."""

    result_type: str | None = None
    input_requests: dict[str, Json] | None = None
    request_state: str | None = None
    meta: dict[str, Json] | Raw | None = field(name="_meta", default=None)

    def __post_init__(self) -> None:
        self.result_type = "input_required"
