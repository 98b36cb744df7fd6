"""Dependency injection: a parameter marked with `Depends(get_db)` gets what `get_db` returns or yields.

A mark is looked for once, when a tool, a resource or a prompt is declared. Where there is none, nothing is left behind
and a call pays nothing. Where there is one, the functions are put in order (those that others need come first), and the
handler is replaced by one that runs this plan around the user's function:

    resolve each function once -> call the user's function -> close generators, the last one first

The generators close on every end: a result, an error, a cancellation. If the user's function and everything it needs are
plain `def`, one thread runs them all, so that a connection that belongs to its thread can be used. Otherwise the plan runs
in the task of the call, where a plain dependency must not block.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar, final, overload

from trimaran.errors import DeclarationError
from trimaran.schema import inspect_handler, markers_of

from .context import Context
from .handlers import Handler

T = TypeVar("T")
Function: TypeAlias = Callable[..., Any]

# The name under which a handler without a Context of its own gets one. No parameter can be called so.
_CONTEXT: Final = "the context of the call"


@final
class Dependency:
    """The mark that `Depends` makes."""

    __slots__ = ("fn",)

    def __init__(self, fn: Function) -> None:
        if not callable(fn):
            raise DeclarationError(f"Depends takes a function, Depends(get_db), not {type(fn).__name__}")
        self.fn: Function = fn

    def __repr__(self) -> str:
        return f"Depends({_name_of(self.fn)})"


if TYPE_CHECKING:

    @overload
    def Depends(fn: Callable[..., AsyncIterator[T]], /) -> T: ...
    @overload
    def Depends(fn: Callable[..., Iterator[T]], /) -> T: ...
    @overload
    def Depends(fn: Callable[..., Awaitable[T]], /) -> T: ...
    @overload
    def Depends(fn: Callable[..., T], /) -> T: ...


def Depends(fn: Callable[..., object], /) -> object:  # noqa: N802 - the name that FastAPI and FastMCP gave it
    """Mark a parameter that the server fills in: `db: Annotated[Db, Depends(get_db)]`, or `db: Db = Depends(get_db)`.

    `get_db` is called once per call, however many parameters need it. It may be async; it may `yield` its value, and goes
    on after the call to clean up. It may take `ctx: Context`, and dependencies of its own.
    """
    return Dependency(fn)


@final
class _Step:
    """One function of a plan, and where its arguments come from."""

    __slots__ = ("context", "enter", "fn", "is_async", "needs")

    def __init__(self, fn: Function, context: str | None, needs: Mapping[str, Function]) -> None:
        self.context = context
        self.needs = needs
        """Parameter to the function whose value it gets."""
        self.enter = True
        """Does it give a context manager, to be entered?"""
        self.is_async = True
        bare = _bare(fn)
        if inspect.isasyncgenfunction(bare):
            self.fn: Function = asynccontextmanager(fn)
        elif inspect.isgeneratorfunction(bare):
            self.fn, self.is_async = contextmanager(fn), False
        else:
            self.fn = fn
            # A function that is already decorated with `asynccontextmanager` or `contextmanager`.
            inner = inspect.unwrap(bare)
            self.enter = inner is not bare and (inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner))
            self.is_async = inspect.iscoroutinefunction(bare) or (self.enter and inspect.isasyncgenfunction(inner))

    def arguments(self, values: Mapping[Function, Any], context: Context) -> dict[str, Any]:
        arguments = {name: values[fn] for name, fn in self.needs.items()}
        if self.context is not None:
            arguments[self.context] = context
        return arguments


@final
class Plan:
    """The dependencies of one handler, those that others need first."""

    __slots__ = ("_fn", "_overridden", "_owner", "_steps", "is_plain", "parameters")

    def __init__(self, fn: Function, owner: str, overrides: Mapping[Function, Function] | None = None) -> None:
        self._fn = fn
        self._owner = owner
        self._overridden = overrides or {}
        self._steps: dict[Function, _Step] = {}
        marks = markers_of(fn, Dependency)
        self.parameters: dict[str, Function] = {name: self._add(mark.fn, ()) for name, mark in marks.items()}
        """Parameter of the handler to the function whose value it gets."""
        self.is_plain: bool = not any(step.is_async for step in self._steps.values())

    def _add(self, fn: Function, path: tuple[Function, ...]) -> Function:
        """Put a function into the plan, after all that it needs; returns the function that takes its place."""
        override = self._overridden.get(fn, fn)
        # An override may ask for the function that it overrides.
        fn = fn if override in path else override
        if fn in path:
            names = " -> ".join(_name_of(step) for step in (*path[path.index(fn) :], fn))
            raise DeclarationError(f"{self._owner}: dependencies must not form a cycle: {names}")
        if fn not in self._steps:
            try:
                marks = markers_of(fn, Dependency)
            except (TypeError, ValueError) as error:
                raise DeclarationError(
                    f"{self._owner}: the signature of the dependency {_name_of(fn)} cannot be read ({error})"
                ) from None
            context = _context_of(fn, marks, self._owner)
            needs = {name: self._add(mark.fn, (*path, fn)) for name, mark in marks.items()}
            self._steps[fn] = _Step(fn, context, needs)
        return fn

    def inject(self, entry: _Injectable) -> None:
        """Put the plan in front of a compiled handler."""
        handler, own = entry.handler, entry.context
        context_name = own or _CONTEXT

        def split(arguments: dict[str, Any]) -> tuple[Plan, Context]:
            context: Context = arguments[context_name] if own else arguments.pop(context_name)
            overrides = context.server.dependency_overrides
            return (Plan(self._fn, self._owner, overrides) if overrides else self), context

        async def run(**arguments: Any) -> Any:
            plan, context = split(arguments)
            if handler.mode == "thread" and plan.is_plain:
                job = functools.partial(plan.run_plainly, handler.fn, arguments, context)
                return await _run(Handler(functools.update_wrapper(job, handler.fn)), {}, context)
            async with AsyncExitStack() as stack:
                await plan.fill(arguments, context, stack)
                return await _run(handler, arguments, context)

        async def stream(**arguments: Any) -> AsyncIterator[Any]:
            plan, context = split(arguments)
            async with AsyncExitStack() as stack:
                await plan.fill(arguments, context, stack)
                async with aclosing(handler.fn(**arguments)) as parts:
                    async for part in parts:
                        yield part

        entry.handler = Handler(stream if handler.mode == "stream" else run)
        entry.context = context_name

    async def fill(self, arguments: dict[str, Any], context: Context, stack: AsyncExitStack) -> None:
        """Resolve every step in the task of the call, and put the values among the arguments."""
        values: dict[Function, Any] = {}
        for fn, step in self._steps.items():
            value = step.fn(**step.arguments(values, context))
            if not step.enter:
                values[fn] = await value if inspect.isawaitable(value) else value
            elif step.is_async:
                values[fn] = await stack.enter_async_context(value)
            else:
                values[fn] = stack.enter_context(value)
        arguments.update({name: values[fn] for name, fn in self.parameters.items()})

    def run_plainly(self, call: Function, arguments: dict[str, Any], context: Context) -> Any:
        """Resolve, call and close in this thread."""
        values: dict[Function, Any] = {}
        with ExitStack() as stack:
            for fn, step in self._steps.items():
                value = step.fn(**step.arguments(values, context))
                values[fn] = stack.enter_context(value) if step.enter else value
            result = call(**arguments, **{name: values[fn] for name, fn in self.parameters.items()})
            if hasattr(result, "__await__"):  # it would run after its dependencies are closed
                if inspect.iscoroutine(result):
                    result.close()
                raise DeclarationError(
                    f"{self._owner} is a plain function, has dependencies and returned an awaitable: write `async def`, "
                    "so that the dependencies stay open until it has ended"
                )
            return result


async def _run(handler: Handler, arguments: dict[str, Any], context: Context) -> Any:
    call = context._call  # pyright: ignore[reportPrivateUsage] - handlers may not see it, and this is the library
    return await handler.run(arguments, call, context.server.runtime.threads)


class _Injectable(Protocol):
    """A compiled tool, resource, template or prompt."""

    handler: Handler
    context: str | None


def plan_dependencies(fn: Function, owner: str) -> Plan | None:
    """The plan of a handler, or None if no parameter of it is marked.

    Raises:
        DeclarationError: the dependencies form a cycle, or one has a parameter that nothing fills in.
    """
    try:
        is_marked = bool(markers_of(fn, Dependency))
    except (TypeError, ValueError):  # `compile_signature` says what is wrong with it
        return None
    return Plan(fn, owner) if is_marked else None


def _context_of(fn: Function, marks: Mapping[str, Dependency], owner: str) -> str | None:
    """The parameter of a dependency that takes the Context, once every other one is known to be filled in."""
    contexts, _ = inspect_handler(fn, (Context,))
    for name, parameter in inspect.signature(fn).parameters.items():
        is_open = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if is_open and name not in marks and name not in contexts:
            raise DeclarationError(
                f"{owner}: the dependency {_name_of(fn)} takes {name!r}, which nothing fills in: mark it with "
                f"Depends(...), give it a default, or take `ctx: Context`"
            )
    return contexts[0] if contexts else None


def _bare(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return fn if inspect.isroutine(fn) or isinstance(fn, type) else type(fn).__call__  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _name_of(fn: Any) -> str:
    return getattr(fn, "__name__", None) or repr(fn)
