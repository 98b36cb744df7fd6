"""Apps: user interfaces that a server brings along and a host shows in a sandbox (`io.modelcontextprotocol/ui`, 2026-01-26).

Servers declare views with `Apps` and link tools to them with `ui_tool`. Hosts filter tools (`for_model`), read a view
(`read_view`), show it under its `policy`, and talk to it through a `Bridge`. Nothing here renders.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .bridge import (
        Bridge as Bridge,
        Cancelled as Cancelled,
        DisplayMode as DisplayMode,
        Initialized as Initialized,
        Logged as Logged,
        MessageRefused as MessageRefused,
        MessageRequest as MessageRequest,
        ModelContext as ModelContext,
        OpenLink as OpenLink,
        ResourceRead as ResourceRead,
        SizeChanged as SizeChanged,
        TornDown as TornDown,
        ViewEvent as ViewEvent,
        ViewToolCall as ViewToolCall,
        forward as forward,
    )
    from .declare import Apps as Apps, supports_ui as supports_ui
    from .metadata import (
        IDENTIFIER as IDENTIFIER,
        MIME_TYPE as MIME_TYPE,
        UiTool as UiTool,
        ui_of as ui_of,
        ui_tool as ui_tool,
    )
    from .policy import Csp as Csp, allow_attribute as allow_attribute
    from .views import (
        CAPABILITY as CAPABILITY,
        View as View,
        for_model as for_model,
        may_app_call as may_app_call,
        read_view as read_view,
        view_from as view_from,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "bridge": (
                "Bridge Cancelled DisplayMode Initialized Logged MessageRefused MessageRequest ModelContext "
                "OpenLink ResourceRead SizeChanged TornDown ViewEvent ViewToolCall forward"
            ),
            "declare": "Apps supports_ui",
            "metadata": "IDENTIFIER MIME_TYPE UiTool ui_of ui_tool",
            "policy": "Csp allow_attribute",
            "views": "CAPABILITY View for_model may_app_call read_view view_from",
        },
    )
