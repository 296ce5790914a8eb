"""Read tool calls that a model wrote as XML tags, and the results that the agent sent as text.

Models without native tool calls write ``<read_file><path>a.py</path></read_file>``. The agent answers
in the next user message with a text block ``[read_file for 'a.py'] Result:``. The result is the rest
of this block or, in older versions, the next text block and the images after it. Cline also answers
native calls with such a text, if it does not know their ids.

- Only the tags of known tools are calls, as in the parsers of the products. A tag that is neither
  closed nor directly followed by a parameter is text.
- The value of a parameter ends at its first closing tag. The parameter ``content`` of a tool that
  writes a file ends at the last closing tag before the end of the call, because a file may contain
  such a tag.
- Values are strings without surrounding whitespace. ``content`` loses only one line break at each
  end.
- If a call contains text outside of its parameters, its arguments are the whole text of the call.

References
----------
github.com/cline/cline ``src/core/assistant-message/parse-assistant-message.ts`` at 031561e,
``src/shared/tools.ts`` at 0a3eba3, ``src/core/task/tools/utils/ToolDisplayUtils.ts`` at 0cd9cb5 and
``ToolResultUtils.ts`` at 0cd9cb5 and e3a88c6; github.com/RooCodeInc/Roo-Code
``src/core/assistant-message/parseAssistantMessage.ts`` at 0e110a2 and ``packages/types/src/tool.ts``
at 0126cb0; github.com/Kilo-Org/kilocode ``src/shared/tools.ts`` at 00a626d;
github.com/Kilo-Org/kilocode-legacy ``src/shared/tools.ts`` at c3aeac0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from ctxlab.formats.fields import get_text

_Block: TypeAlias = dict[str, Any]

_TOOLS = (
    *("execute_command", "read_file", "write_to_file", "replace_in_file", "search_files"),
    *("list_files", "list_code_definition_names", "browser_action", "inspect_site", "web_fetch"),
    *("web_search", "use_mcp_tool", "access_mcp_resource", "load_mcp_documentation"),
    *("ask_followup_question", "attempt_completion", "plan_mode_respond", "plan_mode_response"),
    *("act_mode_respond", "new_task", "condense", "summarize_task", "report_bug", "new_rule"),
    *("focus_chain", "generate_explanation", "search_subagent", "use_subagents", "use_skill"),
    *("apply_diff", "apply_patch", "insert_content", "insert_code_block", "search_and_replace"),
    *("search_replace", "edit_file", "fast_edit_file", "delete_file", "switch_mode"),
    *("fetch_instructions", "codebase_search", "update_todo_list", "run_slash_command"),
    *("generate_image", "read_command_output", "skill", "simple_read_file", "terminal_kill"),
)
_FILE_WRITERS = ("write_to_file", "new_rule", "insert_content")
_TOOL_TAG = re.compile(rf"<({'|'.join(_TOOLS)})>")
_PARAMETER_TAG = re.compile(r"<([a-zA-Z_]\w*)>")
_RESULT_HEADER = re.compile(r"\s*\[([a-zA-Z_]\w*)(?: .*?)?\] Result:[ \t]*(?:\n|\Z)", re.DOTALL)


class XmlCall(NamedTuple):
    """A tool call in the text of an answer."""

    name: str
    "name of the tool"
    arguments: dict[str, str] | str
    "values of the parameters; the whole text of the call if it has text outside of its parameters"
    start: int
    "index of the first character of the call in the text"
    end: int
    "index after the last character of the call in the text"


def find_calls(text: str) -> list[XmlCall]:
    """Find the tool calls in the text of an answer.

    Parameters
    ----------
    text : str
        The text of the answer.

    Returns
    -------
    list of XmlCall
        The calls, in the order of the text.

    Examples
    --------
    >>> find_calls("I look. <read_file><path>a.py</path></read_file>")
    [XmlCall(name='read_file', arguments={'path': 'a.py'}, start=8, end=48)]
    """
    calls: list[XmlCall] = []
    place = 0
    while tag := _TOOL_TAG.search(text, place):
        call = _parse_call(text, tag)
        if call is None:
            place = tag.end()
        else:
            calls.append(call)
            place = call.end
    return calls


def remove_calls(text: str, calls: Iterable[XmlCall]) -> str | None:
    r"""Remove tool calls from the text of an answer.

    Parameters
    ----------
    text : str
        The text of the answer.
    calls : iterable of XmlCall
        Calls that ``find_calls`` found in this text, in order.

    Returns
    -------
    str or None
        The texts between the calls, joined by empty lines. None if there are none. If no call is
        given, the text is returned unchanged.

    Examples
    --------
    >>> text = "I look.\n<read_file><path>a.py</path></read_file>"
    >>> remove_calls(text, find_calls(text)), remove_calls("hi\n", [])
    ('I look.', 'hi\n')
    """
    pieces, place, removed = [], 0, False
    for call in calls:
        pieces.append(text[place : call.start])
        place, removed = call.end, True
    if not removed:
        return text
    pieces.append(text[place:])
    return "\n\n".join(filter(None, map(str.strip, pieces))) or None


def has_result_header(block: Any) -> bool:
    """Check whether a content block begins with the header of a tool result.

    Parameters
    ----------
    block : Any
        A content block of a user message.

    Returns
    -------
    bool
        True if the block is a text that begins with a header such as ``[read_file for 'a'] Result:``,
        and the tool is known.
    """
    header = _RESULT_HEADER.match(get_text(block, "text") or "")
    return header is not None and header[1] in _TOOLS


def pair_results(
    tools: Sequence[str], blocks: Iterable[_Block]
) -> tuple[dict[int, list[_Block]], list[_Block]]:
    """Find the results of tool calls in the user message after an answer.

    A result belongs to the first call of the tool that has no result yet. Some headers have another
    name than the call, such as ``use_mcp_tool`` for a native call of such a tool. Their results belong
    to the first call that is not named by a header.

    Parameters
    ----------
    tools : sequence of str
        Names of the tools that the answer calls, in order.
    blocks : iterable of dict
        The content blocks of the user message.

    Returns
    -------
    dict of int to list of dict
        Index of a call → blocks of its result, including the header.
    list of dict
        The other blocks of the message.
    """
    blocks = list(blocks)
    headers = [_RESULT_HEADER.match(get_text(block, "text") or "") for block in blocks]
    named = {header[1] for header in headers if header}
    results: dict[int, list[_Block]] = {}
    rest: list[_Block] = []
    open_result: list[_Block] | None = None  # a result whose next block may belong to it
    for block, header in zip(blocks, headers, strict=True):
        waiting = [index for index in range(len(tools)) if index not in results]
        same = (index for index in waiting if header and tools[index] == header[1])
        others = (index for index in waiting if header and tools[index] not in named)
        index = next(chain(same, others), None)
        if header and index is not None:
            results[index] = [block]
            open_result = results[index] if header.end() == len(block["text"]) else None
        elif open_result is not None and _continues_result(block, open_result):
            open_result.append(block)
        else:
            rest.append(block)
            open_result = None
    return results, rest


def _parse_call(text: str, tag: re.Match[str]) -> XmlCall | None:
    """Parse the call that begins with a tag. Return None if the tag does not begin a call."""
    name, place = tag[1], tag.end()
    closing = f"</{name}>"
    arguments: dict[str, str] = {}
    others: list[str] = []
    while True:
        end, parameter = text.find(closing, place), _PARAMETER_TAG.search(text, place)
        if parameter is None or 0 <= end < parameter.start():
            break
        others.append(text[place : parameter.start()])
        value_end = _find_value_end(text, name, parameter)
        value = text[parameter.end() : value_end]
        arguments[parameter[1]] = _trim_value(parameter[1], value)
        place = min(value_end + len(f"</{parameter[1]}>"), len(text))
    if end < 0 and (not arguments or others[0].strip()):
        return None
    others.append(text[place : end if end >= 0 else len(text)])
    whole_end = end + len(closing) if end >= 0 else len(text)
    if any(map(str.strip, others)):
        body = text[tag.end() : end if end >= 0 else len(text)]
        return XmlCall(name, body.strip(), tag.start(), whole_end)
    return XmlCall(name, arguments, tag.start(), whole_end)


def _find_value_end(text: str, tool: str, parameter: re.Match[str]) -> int:
    """Return the index of the closing tag of a parameter, or the length of the text."""
    closing = f"</{parameter[1]}>"
    end = text.find(closing, parameter.end())
    if end >= 0 and parameter[1] == "content" and tool in _FILE_WRITERS:
        call_end = text.find(f"</{tool}>", end)
        end = text.rfind(closing, end, call_end if call_end >= 0 else len(text))
    return end if end >= 0 else len(text)


def _trim_value(name: str, value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n") if name == "content" else value.strip()


def _continues_result(block: _Block, result: list[_Block]) -> bool:
    """Check whether a block belongs to a result: one text after the header, then images."""
    kind = block.get("type")
    if kind == "text":
        text = get_text(block, "text") or ""
        return len(result) == 1 and not text.lstrip().startswith("<environment_details>")
    return kind == "image"
