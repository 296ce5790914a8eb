"""Convert single OpenHands events to the text that the model saw or wrote.

Actions of agents without function calling, commands of the user, observations and recalls become
the text that OpenHands makes of them before each request (``ConversationMemory``, in older versions
the ``CodeActAgent``). Only the content of the event is used; the template sentences around a recall
are not added. ``history`` puts the events in order.
"""

from __future__ import annotations

from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.common.chat_format import (
    Content,
    first_choice,
    image_part,
    normalize_content,
    text_part,
)
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.fields import get_in, get_list, get_text
from ctxlab.messages.openai_format import message_from_dict
from ctxlab.messages.types import Message, ToolCall

_ACTION_TAGS = {
    "run": ("bash", "command"),
    "run_ipython": ("ipython", "code"),
    "browse_interactive": ("browse", "browser_actions"),
}
_INLINE_IMAGE = "![image](data:image/png;base64,"
_IMAGE_PLACEHOLDER = "![image](data:image/png;base64, ...) already displayed to user"
_TRUNCATION_NOTICE = "\n[... Observation truncated due to length ...]\n"


def action_text(kind: str, args: dict[str, Any]) -> str:
    """Return an action of an agent without function calling: its thought, then the tagged action.

    An action without a tag becomes JSON.

    Parameters
    ----------
    kind : str
        Type of the action.
    args : dict
        Arguments of the action.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> print(action_text("run", {"thought": "Look.", "command": "ls"}))
    Look.
    <execute_bash>
    ls
    </execute_bash>
    """
    thought = get_text(args, "thought") or ""
    if kind in ("message", "finish"):
        return get_text(args, "content") or thought
    if kind == "delegate":
        tag, said = "browse", get_in(args, "inputs", "task")
    elif kind in _ACTION_TAGS:
        tag, key = _ACTION_TAGS[kind]
        said = args.get(key)
    else:
        rest = {key: value for key, value in args.items() if key != "thought"}
        return f"{thought}\n{dump_json({'action': kind, 'args': rest})}"
    return f"{thought}\n<execute_{tag}>\n{get_text(said) or ''}\n</execute_{tag}>"


def observation_text(kind: str, content: str, extras: Any, *, function_calling: bool) -> str:
    r"""Return an observation as the model received it.

    Parameters
    ----------
    kind : str
        Type of the observation.
    content : str
        Content of the observation.
    extras : Any
        Further data of the observation.
    function_calling : bool
        Whether the run used function calling.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> observation_text("run", "a.py", {"metadata": {"exit_code": 0}}, function_calling=True)
    'a.py\n[Command finished with exit code 0]'
    """
    if kind == "run":
        content = _command_text(content, extras, function_calling=function_calling)
    elif kind == "run_ipython" and _INLINE_IMAGE in content:
        content = "\n".join(
            _IMAGE_PLACEHOLDER if _INLINE_IMAGE in line else line for line in content.split("\n")
        )
    elif kind == "delegate":
        content = get_text(extras, "outputs", "content") or content
    elif kind == "error":
        content += "\n[Error occurred in processing last action]"
    elif kind == "user_rejected":
        return f"OBSERVATION:\n{content}\n[Last action has been rejected by the user]"
    return content if function_calling else f"OBSERVATION:\n{content}"


def recall_text(extras: Any) -> str:
    r"""Return recalled knowledge: first about the workspace, then from microagents.

    Parameters
    ----------
    extras : Any
        Data of the recall observation.

    Returns
    -------
    str
        The text, empty if nothing was recalled.

    Examples
    --------
    >>> recall_text({"date": "2025-05-01", "microagent_knowledge": [{"content": "Use git."}]})
    '2025-05-01\n\nUse git.'
    """
    keys = ("repo_name", "repo_directory", "repo_branch", "repo_instructions", "working_dir")
    told = [get_in(extras, key) for key in keys]
    hosts, secrets = (
        get_in(extras, "runtime_hosts"),
        get_in(extras, "custom_secrets_descriptions"),
    )
    told += [dump_json(each) for each in (hosts, secrets) if isinstance(each, dict) and each]
    told += [get_in(extras, "additional_agent_instructions"), get_in(extras, "date")]
    told.append(get_in(extras, "conversation_instructions"))
    told += [get_in(each, "content") for each in get_list(extras, "microagent_knowledge")]
    return "\n\n".join(each for each in told if get_text(each))


def truncate_middle(content: str, max_chars: int) -> str:
    r"""Cut the middle out of a long text.

    Parameters
    ----------
    content : str
        The text.
    max_chars : int
        Number of characters to keep; 0 keeps all.

    Returns
    -------
    str
        The beginning and the end of the text, with a notice between them.

    Examples
    --------
    >>> truncate_middle("abcdef", 4)
    'ab\n[... Observation truncated due to length ...]\nef'
    """
    if not max_chars or len(content) <= max_chars:
        return content
    half = max_chars // 2
    return content[:half] + _TRUNCATION_NOTICE + content[len(content) - half :]


def build_answer(args: dict[str, Any], metadata: dict[str, Any], id: str) -> Message:
    """Return the message of the model with a certain call.

    Parameters
    ----------
    args : dict
        Arguments of the action. They become the call if the model's response is not logged.
    metadata : dict
        ``tool_call_metadata`` of the event.
    id : str
        Id of the call.

    Returns
    -------
    Message
        The assistant message.
    """
    response = metadata.get("model_response")
    said = first_choice(response)
    keys = ("content", "tool_calls", "reasoning_content")
    wire = {key: get_in(said, key) for key in keys} | {"role": "assistant"}
    message = message_from_dict(wire | {"content": normalize_content(wire["content"])})
    if all(call.id != id for call in message.tool_calls):
        rest = {key: value for key, value in args.items() if key != "thought"}
        name = get_text(metadata, "function_name") or ""
        calls = (ToolCall(id, name, dump_json(rest)),)
        message = Message("assistant", get_text(args, "thought"), tool_calls=calls)
    return message.replace(usage=openai_usage(get_in(response, "usage")))


def with_images(content: str, urls: Any) -> Content:
    """Return a text followed by images.

    Parameters
    ----------
    content : str
        The text.
    urls : Any
        A list of image URLs. Other values count as no images.

    Returns
    -------
    str or tuple of dict
        The text alone, or content parts if there are images.
    """
    shown = [image_part(url) for url in get_list(urls) if get_text(url)]
    return (text_part(content), *shown) if shown else content


def _command_text(content: str, extras: Any, *, function_calling: bool) -> str:
    metadata = get_in(extras, "metadata")
    if not isinstance(metadata, dict):  # older versions
        content += get_text(extras, "interpreter_details") or ""
        code, number = get_in(extras, "exit_code"), get_in(extras, "command_id")
        which = "" if function_calling else f" {number}"
        return content + (
            f"\n[Command{which} finished with exit code {code}]" if _is_int(code) else ""
        )
    content = (get_text(metadata, "prefix") or "") + content + (get_text(metadata, "suffix") or "")
    if folder := get_text(metadata, "working_dir"):
        content += f"\n[Current working directory: {folder}]"
    if python := get_text(metadata, "py_interpreter_path"):
        content += f"\n[Python interpreter: {python}]"
    code = metadata.get("exit_code")
    if _is_int(code) and code != -1:
        content += f"\n[Command finished with exit code {code}]"
    return content


def _is_int(code: Any) -> bool:
    return isinstance(code, int) and not isinstance(code, bool)
