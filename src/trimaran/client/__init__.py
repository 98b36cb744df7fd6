"""The client hull: requests, deadlines, healing, and what servers may ask in return. No sockets, no HTTP library.

The types that handlers receive and calls return can be imported from here, for annotations; the module that defines it is loaded
then, and not before.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .client import Client as Client
    from .link import Channel as Channel, ExitReport as ExitReport, Owner as Owner
    from .option_types import (
        CallOptions as CallOptions,
        ListenOptions as ListenOptions,
        TaskOptions as TaskOptions,
    )
    from .results import (
        Page as Page,
        PromptResult as PromptResult,
        ResourceResult as ResourceResult,
        ToolResult as ToolResult,
    )
    from .server_requests import (
        Deferred as Deferred,
        Elicitation as Elicitation,
        LogEntry as LogEntry,
        Sampling as Sampling,
        StateEvent as StateEvent,
    )
    from .subscriptions import Change as Change, ChangeStream as ChangeStream, Subscription as Subscription
    from .tasks import TaskHandle as TaskHandle, TaskUpdate as TaskUpdate
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "client": "Client",
            "link": "Channel ExitReport Owner",
            "option_types": "CallOptions ListenOptions TaskOptions",
            "results": "Page PromptResult ResourceResult ToolResult",
            "server_requests": "Deferred Elicitation LogEntry Sampling StateEvent",
            "subscriptions": "Change ChangeStream Subscription",
            "tasks": "TaskHandle TaskUpdate",
        },
    )
