"""How each framework is told of a tool: decorators, constructors, base classes, and who takes lists of tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROOTS: Final[dict[str, str]] = {
    "langchain": "langgraph",
    "langgraph": "langgraph",
    "deepagents": "langgraph",
    "crewai": "crewai",
    "agents": "openai-agents",
    "autogen": "autogen",
    "pyautogen": "autogen",
    "llama_index": "llama-index",
    "llama": "llama-index",
    "semantic_kernel": "semantic-kernel",
    "mcp": "mcp",
    "fastmcp": "mcp",
    "pydantic_ai": "pydantic-ai",
    "google.adk": "google-adk",
    "openai": "tool-list",
    "anthropic": "tool-list",
    "litellm": "tool-list",
}
"""First part of a dotted name -> framework; a suffix after `_` does not count (`langchain_core`)."""

TITLES: Final[dict[str, str]] = {
    "langgraph": "LangChain / LangGraph",
    "crewai": "CrewAI",
    "openai-agents": "OpenAI Agents SDK",
    "autogen": "AutoGen",
    "llama-index": "LlamaIndex",
    "semantic-kernel": "Semantic Kernel",
    "mcp": "MCP",
    "pydantic-ai": "Pydantic AI",
    "google-adk": "Google ADK",
    "tool-list": "tool list",
}
ADAPTERS: Final = frozenset({"langgraph", "crewai", "openai-agents", "autogen", "llama-index", "semantic-kernel"})
"""Frameworks that have an adapter to install: `agent-saga-NAME`."""

_EXACT: Final = frozenset({"agents", "mcp", "openai"})


def framework_of(dotted: str) -> str | None:
    """Return the framework that a dotted name belongs to."""
    if dotted.startswith("google.adk"):
        return "google-adk"
    top = dotted.partition(".")[0].partition("(")[0]
    if top in ROOTS and top != "llama":
        return ROOTS[top]
    stem = top.partition("_")[0]
    return ROOTS.get(stem) if stem not in _EXACT and "_" in top else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """A decorator or constructor that makes a tool.

    Attributes:
        function: where the function is: keyword, and position (-1: none).
        name: where the name is.
        first_text: a first argument that is a text is the name.
    """

    function: tuple[str, ...] = ()
    position: int = -1
    name: tuple[str, ...] = ("name",)
    name_position: int = -1
    first_text: bool = False


_PLAIN: Final = Maker(function=("func", "fn", "function"), position=0)
_NAMED: Final = Maker(function=("func", "function", "coroutine", "fn"), position=1, name_position=0)

DECORATORS: Final[dict[str, dict[str, Maker]]] = {
    "langgraph": {"tool": Maker(position=0, name=("name_or_callable",), first_text=True)},
    "crewai": {"tool": Maker(position=0, first_text=True)},
    "openai-agents": {"function_tool": Maker(function=("func",), position=0, name=("name_override",))},
    "autogen": {
        "register_for_llm": Maker(),
        "register_for_execution": Maker(),
    },
    "llama-index": {},
    "semantic-kernel": {"kernel_function": Maker(function=("func",), position=0)},
    "mcp": {"tool": Maker(position=0, first_text=True)},
    "pydantic-ai": {
        "tool": Maker(function=("func",), position=0),
        "tool_plain": Maker(function=("func",), position=0),
    },
    "google-adk": {},
    "tool-list": {"beta_tool": Maker(function=("func",), position=0), "beta_async_tool": Maker(position=0)},
}

CONSTRUCTORS: Final[dict[str, dict[str, Maker]]] = {
    "langgraph": {
        "Tool": _NAMED,
        "Tool.from_function": Maker(function=("func", "coroutine"), position=0, name_position=1),
        "StructuredTool": _NAMED,
        "StructuredTool.from_function": Maker(function=("func", "coroutine"), position=0, name_position=2),
        "create_retriever_tool": Maker(name_position=1),
        "create_handoff_tool": Maker(),
    },
    "crewai": {
        "Tool": _NAMED,
        "CrewStructuredTool": _NAMED,
        "CrewStructuredTool.from_function": Maker(function=("func",), position=0, name_position=1),
    },
    "openai-agents": {"FunctionTool": Maker(function=("on_invoke_tool",), position=3, name_position=0)},
    "autogen": {
        "FunctionTool": Maker(function=("func",), position=0, name_position=2),
        "register_function": Maker(function=("f",), position=0),
    },
    "llama-index": {
        "FunctionTool": Maker(function=("fn", "async_fn"), position=0),
        "FunctionTool.from_defaults": Maker(function=("fn", "async_fn"), position=0, name_position=1),
        "QueryEngineTool": Maker(),
        "QueryEngineTool.from_defaults": Maker(name_position=1),
        "RetrieverTool": Maker(),
        "RetrieverTool.from_defaults": Maker(name_position=2),
        "QueryPlanTool.from_defaults": Maker(),
    },
    "semantic-kernel": {
        "KernelFunctionFromMethod": Maker(function=("method",), position=0, name=("function_name",)),
        "KernelFunction.from_method": Maker(function=("method",), position=0, name=("function_name",)),
    },
    "mcp": {
        "Tool": Maker(name_position=0),
        "types.Tool": Maker(name_position=0),
        "Tool.from_function": Maker(function=("fn",), position=0, name_position=1),
        "FunctionTool.from_function": Maker(function=("fn",), position=0, name_position=1),
        "add_tool": Maker(function=("fn",), position=0, name_position=1),
    },
    "pydantic-ai": {
        "Tool": Maker(function=("function",), position=0),
        "Tool.from_schema": Maker(function=("function",), position=0, name_position=1),
        "add_function": Maker(function=("func",), position=0, name_position=2),
    },
    "google-adk": {
        "FunctionTool": Maker(function=("func",), position=0),
        "LongRunningFunctionTool": Maker(function=("func",), position=0),
    },
    "tool-list": {},
}

BASES: Final[dict[str, frozenset[str]]] = {
    "langgraph": frozenset({"BaseTool", "StructuredTool", "Tool"}),
    "crewai": frozenset({"BaseTool", "StructuredTool"}),
    "openai-agents": frozenset(),
    "autogen": frozenset({"BaseTool", "BaseToolWithState", "BaseStreamTool"}),
    "llama-index": frozenset({"BaseTool", "AsyncBaseTool", "FunctionTool", "BaseToolSpec"}),
    "semantic-kernel": frozenset(),
    "mcp": frozenset({"Tool"}),
    "pydantic-ai": frozenset(),
    "google-adk": frozenset({"BaseTool", "FunctionTool", "LongRunningFunctionTool", "BaseAuthenticatedTool"}),
    "tool-list": frozenset(),
}
"""Subclasses of these are tools; those of `BaseToolSpec` hold several, by `spec_functions`."""

TAKERS: Final[dict[str, dict[str, int]]] = {
    "langgraph": {
        "create_agent": 1,
        "create_react_agent": 1,
        "create_tool_calling_agent": 1,
        "create_openai_functions_agent": 1,
        "create_openai_tools_agent": 1,
        "create_structured_chat_agent": 1,
        "create_json_chat_agent": 1,
        "create_xml_agent": 1,
        "create_deep_agent": 0,
        "initialize_agent": 0,
        "ToolNode": 0,
        "ToolExecutor": 0,
        "bind_tools": 0,
        "bind_functions": 0,
        "AgentExecutor": -1,
    },
    "crewai": {},
    "openai-agents": {},
    "autogen": {"StaticWorkbench": 0, "StaticStreamWorkbench": 0, "ToolAgent": 1},
    "llama-index": {
        "from_tools": 0,
        "from_tools_or_functions": 0,
        "from_objects": 0,
        "chat_with_tools": 0,
        "achat_with_tools": 0,
        "predict_and_call": 0,
        "call_tool_with_selection": 1,
        "FunctionCallingAgent": 0,
    },
    "semantic-kernel": {},
    "mcp": {},
    "pydantic-ai": {"FunctionToolset": 0},
    "google-adk": {},
    "tool-list": {},
}
"""Who takes tools by position; by `tools=` whatever belongs to a framework does."""
TAKES: Final = frozenset({"tools", "functions", "tools_or_functions", "function_map"})

HOSTED: Final = frozenset(
    {
        "WebSearchTool",
        "FileSearchTool",
        "CodeInterpreterTool",
        "HostedMCPTool",
        "ImageGenerationTool",
        "ToolSearchTool",
        "google_search",
        "builtin_code_execution",
    }
)
"""Run by the model's provider: no code of the project, and nothing that a saga could stand before."""
PASS: Final = frozenset({"as_tool", "AgentTool", "handoff", "TeamTool", "transfer_to_agent"})
"""Agents as tools: what they do is seen in their own tools."""
SOURCES: Final = (
    "Toolkit",
    "ToolSpec",
    "Toolset",
    "Workbench",
    "MCPClient",
    "MCPServer",
    "MCPTools",
    "MCPServerAdapter",
)
"""What gives tools whose names only a run can tell."""


def match(table: dict[str, dict[str, Maker]], dotted: str) -> tuple[str, Maker] | None:
    """Return framework and maker of a dotted name: by its last part, or its last two."""
    framework = framework_of(dotted)
    if framework is None:
        return None
    known, parts = table[framework], dotted.split(".")
    maker = known.get(".".join(parts[-2:]).replace("()", "")) or known.get(parts[-1])
    return None if maker is None else (framework, maker)
