"""The host: configuration, permissions, and one catalog of many servers, for a program that lets a model use tools.

Importing this loads nothing: each name is resolved when it is first used.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .approvals import PermissionDenied as PermissionDenied
    from .config import (
        ConfigUnusable as ConfigUnusable,
        ContextEntry as ContextEntry,
        FailedEntry as FailedEntry,
        HostConfig as HostConfig,
        Machine as Machine,
        OAuthEntry as OAuthEntry,
        Problem as Problem,
        RuleEntry as RuleEntry,
        ServerEntry as ServerEntry,
        Source as Source,
        ToolSettings as ToolSettings,
        load_config as load_config,
        read_config as read_config,
    )
    from .consent import (
        ConsentBridge as ConsentBridge,
        ConsentLost as ConsentLost,
        Question as Question,
        Questions as Questions,
    )
    from .context import (
        BudgetPlan as BudgetPlan,
        ContextFinding as ContextFinding,
        ContextReport as ContextReport,
        ServerCost as ServerCost,
        ToolCost as ToolCost,
        count_tokens as count_tokens,
        estimate_tokens as estimate_tokens,
    )
    from .form_fields import Field as Field, Form as Form
    from .host import AlreadyRegistered as AlreadyRegistered, Host as Host
    from .mentions import (
        Expansion as Expansion,
        Mention as Mention,
        ResourceUnknown as ResourceUnknown,
        TemplateArity as TemplateArity,
    )
    from .names import UnknownName as UnknownName
    from .output_limits import OutputLimits as OutputLimits, OutputMissing as OutputMissing, OutputPage as OutputPage
    from .server_table import NotRegistered as NotRegistered
    from .supervise import ServerStatus as ServerStatus, ServerUnavailable as ServerUnavailable
    from .trust import (
        Arrival as Arrival,
        DataFlow as DataFlow,
        DefinitionHeld as DefinitionHeld,
        ScanFinding as ScanFinding,
        HeldDefinition as HeldDefinition,
        Pins as Pins,
        PinsDamaged as PinsDamaged,
        PinsUnwritable as PinsUnwritable,
        Trust as Trust,
        Untrusted as Untrusted,
        clean_text as clean_text,
        scan_text as scan_text,
        scan_tool as scan_tool,
    )
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "approvals": "PermissionDenied",
            "config": (
                "ConfigUnusable ContextEntry FailedEntry HostConfig Machine OAuthEntry Problem RuleEntry ServerEntry Source "
                "ToolSettings load_config read_config"
            ),
            "consent": "ConsentBridge ConsentLost Question Questions",
            "context": ("BudgetPlan ContextFinding ContextReport ServerCost ToolCost count_tokens estimate_tokens"),
            "form_fields": "Field Form",
            "host": "AlreadyRegistered Host",
            "mentions": "Expansion Mention ResourceUnknown TemplateArity",
            "names": "UnknownName",
            "output_limits": "OutputLimits OutputMissing OutputPage",
            "server_table": "NotRegistered",
            "supervise": "ServerStatus ServerUnavailable",
            "trust": (
                "Arrival DataFlow DefinitionHeld ScanFinding HeldDefinition Pins PinsDamaged PinsUnwritable Trust Untrusted "
                "clean_text scan_text scan_tool"
            ),
        },
    )
