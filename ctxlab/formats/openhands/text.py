"""What one event of OpenHands says is put as the model saw it, or as it said it.

Actions of agents that call no functions, commands of the user, observations and recalls become the
text that OpenHands makes of them before each request (``ConversationMemory``, in older versions the
``CodeActAgent``). Only what the event itself says is put into it: of the sentences which a template
puts around a recall, none. ``openhands_history`` puts the events in their order.
"""

from __future__ import annotations

from typing import Any

from ctxlab._utils.jsonio import dump_json
from ctxlab.formats.common.chat_format import (
    Content,
    first_choice,
    image_part,
    plain_content,
    text_part,
)
from ctxlab.formats.common.usage import openai_usage
from ctxlab.formats.optional_fields import (
    listed,
    text,
    within,
)
from ctxlab.messages.types import (
    Message,
    ToolCall,
)

__all__ = [
    "action_text",
    "answer",
    "observation_text",
    "recall_text",
    "shortened",
    "with_images",
]

_TAGS = {
    "run": ("bash", "command"),
    "run_ipython": ("ipython", "code"),
    "browse_interactive": ("browse", "browser_actions"),
}
_IMAGE = "![image](data:image/png;base64,"
_SHOWN = "![image](data:image/png;base64, ...) already displayed to user"
_CUT = "\n[... Observation truncated due to length ...]\n"


def action_text(kind: str, args: dict[str, Any]) -> str:
    """What an agent without function calling said: its thought, then the action in its tag.

    An action that has no tag is said as JSON.

    >>> print(action_text("run", {"thought": "Look.", "command": "ls"}))
    Look.
    <execute_bash>
    ls
    </execute_bash>
    """
    thought = text(args.get("thought")) or ""
    if kind in ("message", "finish"):
        return text(args.get("content")) or thought
    if kind == "delegate":
        tag, said = "browse", within(args, "inputs", "task")
    elif kind in _TAGS:
        tag, key = _TAGS[kind]
        said = args.get(key)
    else:
        rest = {key: value for key, value in args.items() if key != "thought"}
        return f"{thought}\n{dump_json({'action': kind, 'args': rest})}"
    return f"{thought}\n<execute_{tag}>\n{text(said) or ''}\n</execute_{tag}>"


def observation_text(kind: str, content: str, extras: Any, *, called: bool) -> str:
    """What the model reads of an observation; ``called``: OpenHands called functions in this run.

    >>> observation_text("run", "a.py", {"metadata": {"exit_code": 0}}, called=True)
    'a.py\\n[Command finished with exit code 0]'
    """
    if kind == "run":
        content = _command(content, extras, called=called)
    elif kind == "run_ipython" and _IMAGE in content:
        content = "\n".join(_SHOWN if _IMAGE in line else line for line in content.split("\n"))
    elif kind == "delegate":
        content = text(within(extras, "outputs", "content")) or content
    elif kind == "error":
        content += "\n[Error occurred in processing last action]"
    elif kind == "user_rejected":
        return f"OBSERVATION:\n{content}\n[Last action has been rejected by the user]"
    return content if called else f"OBSERVATION:\n{content}"


def recall_text(extras: Any) -> str:
    """What a recall holds: what is known of the workspace, then what microagents know.

    >>> recall_text({"date": "2025-05-01", "microagent_knowledge": [{"content": "Use git."}]})
    '2025-05-01\\n\\nUse git.'
    """
    keys = ("repo_name", "repo_directory", "repo_branch", "repo_instructions", "working_dir")
    told = [within(extras, key) for key in keys]
    hosts, secrets = within(extras, "runtime_hosts"), within(extras, "custom_secrets_descriptions")
    told += [dump_json(each) for each in (hosts, secrets) if isinstance(each, dict) and each]
    told += [within(extras, "additional_agent_instructions"), within(extras, "date")]
    told.append(within(extras, "conversation_instructions"))
    told += [within(each, "content") for each in listed(within(extras, "microagent_knowledge"))]
    return "\n\n".join(each for each in told if text(each))


def shortened(content: str, longest: int) -> str:
    """The beginning and the end of a text that is longer than ``longest``; 0: as long as it is.

    >>> shortened("abcdef", 4)
    'ab\\n[... Observation truncated due to length ...]\\nef'
    """
    if not longest or len(content) <= longest:
        return content
    half = longest // 2
    return content[:half] + _CUT + content[len(content) - half :]


def answer(args: dict[str, Any], metadata: dict[str, Any], id: str) -> Message:
    """The message with call ``id`` as the model answered; made of the action where it is not logged."""
    response = metadata.get("model_response")
    said = first_choice(response)
    keys = ("content", "tool_calls", "reasoning_content")
    wire = {key: within(said, key) for key in keys} | {"role": "assistant"}
    message = Message.from_dict(wire | {"content": plain_content(wire["content"])})
    if all(call.id != id for call in message.tool_calls):
        rest = {key: value for key, value in args.items() if key != "thought"}
        name = text(metadata.get("function_name")) or ""
        calls = (ToolCall(id, name, dump_json(rest)),)
        message = Message("assistant", text(args.get("thought")), tool_calls=calls)
    return message.replace(usage=openai_usage(within(response, "usage")))


def with_images(said: str, urls: Any) -> Content:
    """A text, with the images behind it where there are any."""
    shown = [image_part(url) for url in listed(urls) if text(url)]
    return (text_part(said), *shown) if shown else said


def _command(content: str, extras: Any, *, called: bool) -> str:
    metadata = within(extras, "metadata")
    if not isinstance(metadata, dict):  # older versions
        content += text(within(extras, "interpreter_details")) or ""
        code, number = within(extras, "exit_code"), within(extras, "command_id")
        which = "" if called else f" {number}"
        return content + (f"\n[Command{which} finished with exit code {code}]" if _is(code) else "")
    content = (text(metadata.get("prefix")) or "") + content + (text(metadata.get("suffix")) or "")
    if folder := text(metadata.get("working_dir")):
        content += f"\n[Current working directory: {folder}]"
    if python := text(metadata.get("py_interpreter_path")):
        content += f"\n[Python interpreter: {python}]"
    code = metadata.get("exit_code")
    if _is(code) and code != -1:
        content += f"\n[Command finished with exit code {code}]"
    return content


def _is(code: Any) -> bool:
    return isinstance(code, int) and not isinstance(code, bool)
