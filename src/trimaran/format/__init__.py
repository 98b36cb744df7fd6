"""Tools, calls and results in the shapes that models' providers use: Anthropic, OpenAI, Gemini. Pure, and no SDK needed.

    tools = to_anthropic(await client.list_tools())
    name, arguments = from_anthropic_call(block)
    message = {"role": "user", "content": [result_to_anthropic(await client.call_tool(name, arguments), block["id"])]}

Everything is plain JSON values: what goes into a provider's request, and what came in its response. There is no agent
loop and no provider's library here (R224).

Providers accept different schemas, so each has a profile of JSON Schema. `lint` says what a provider would refuse, by tool and
path; the functions that make tools change a schema where that loses nothing, and leave it alone where nothing is wrong.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .anthropic import (
        AnthropicTool as AnthropicTool,
        from_anthropic_call as from_anthropic_call,
        result_from_anthropic as result_from_anthropic,
        result_to_anthropic as result_to_anthropic,
        to_anthropic as to_anthropic,
    )
    from .calls import ToolCall as ToolCall, restore_arguments as restore_arguments
    from .fit import Fit as Fit, Fitted as Fitted, fit_schema as fit_schema
    from .gemini import (
        GeminiTool as GeminiTool,
        from_gemini_call as from_gemini_call,
        result_from_gemini as result_from_gemini,
        result_to_gemini as result_to_gemini,
        to_gemini as to_gemini,
    )
    from .linting import lint as lint
    from .openai import (
        OpenAIFunction as OpenAIFunction,
        OpenAIResponsesTool as OpenAIResponsesTool,
        OpenAITool as OpenAITool,
        from_openai_call as from_openai_call,
        media_to_openai as media_to_openai,
        result_from_openai as result_from_openai,
        result_to_openai as result_to_openai,
        result_to_openai_responses as result_to_openai_responses,
        to_openai as to_openai,
        to_openai_responses as to_openai_responses,
    )
    from .profiles import PROFILES as PROFILES, Profile as Profile, profile_named as profile_named
    from .providers import (
        FORMATS as FORMATS,
        Format as Format,
        FormatOptions as FormatOptions,
        detect_format as detect_format,
        read_calls as read_calls,
        to_provider as to_provider,
    )
    from .rules import Finding as Finding
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "anthropic": "AnthropicTool from_anthropic_call result_from_anthropic result_to_anthropic to_anthropic",
            "calls": "ToolCall restore_arguments",
            "fit": "Fit Fitted fit_schema",
            "gemini": "GeminiTool from_gemini_call result_from_gemini result_to_gemini to_gemini",
            "linting": "lint",
            "openai": (
                "OpenAIFunction OpenAIResponsesTool OpenAITool from_openai_call media_to_openai "
                "result_from_openai result_to_openai result_to_openai_responses to_openai to_openai_responses"
            ),
            "profiles": "PROFILES Profile profile_named",
            "providers": "FORMATS Format FormatOptions detect_format read_calls to_provider",
            "rules": "Finding",
        },
    )
