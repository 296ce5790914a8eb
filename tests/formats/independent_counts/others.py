"""Count the messages of other products without ctxlab: ``python others.py FILE ...``.

The name of the folder tells the product. Rows of simulators, graders and demonstrations were not sent
to the recorded model, and are not counted.
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from counting import Row, print_counts, read_rows, read_text, start_totals

Counts = Iterator[Counter[str]]


def count_file(path: Path) -> dict[str, int]:
    """Return the totals of all conversations in a file."""
    read = next(read for name, read in READERS.items() if f"/{name}" in path.as_posix())
    total = start_totals()
    for counted in read(path):
        total.update(counted)
        total["recordings"] += 1
    return dict(total)


def count_chat(messages: Iterable[Row]) -> Counter[str]:
    """Count messages in OpenAI's format, without their bills."""
    counted: Counter[str] = Counter()
    for message in messages:
        counted.update({message["role"]: 1, "calls": len(message.get("tool_calls") or ())})
    return counted


def read_bill(usage: Row, sent: str = "prompt_tokens", got: str = "completion_tokens") -> Any:
    """Count a bill whose input tokens include those read from the cache and written to it."""
    read = usage.get("input_tokens_cache_read") or usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    counts = {"cache_read": read, "cache_write": written, "output": usage[got]}
    return Counter(usages=1, billed=usage[sent], **counts)


def read_json(path: Path) -> Any:
    return json.loads(read_text(path))


def read_gemini(path: Path) -> Counts:
    counted: Counter[str] = Counter()
    for message in read_json(path)["messages"]:
        if message["type"] == "user":
            counted["user"] += 1
        elif message["type"] == "gemini":
            calls, tokens = message.get("toolCalls") or (), message["tokens"]
            results = sum(bool(call.get("result")) for call in calls)
            # Without tokens: the calls of the answer before, which were logged after a notice.
            answers = int(tokens["total"] > 0)
            counted.update(assistant=answers, usages=answers, calls=len(calls), tool=results)
            counted.update(output=tokens["output"] + tokens["thoughts"])
            counted.update(billed=tokens["input"], cache_read=tokens["cached"])
    yield counted


def read_inspect(path: Path) -> Counts:
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.startswith("samples/")]
            samples = [json.loads(archive.read(name)) for name in names]
    else:
        samples = read_json(path)["samples"]
    for sample in samples:
        counted = count_chat(sample["messages"])
        answers = [m for m in sample["messages"] if m["role"] == "assistant"]
        said = {answer.get("id") or str(answer["content"]) for answer in answers}
        for event in sample.get("events") or sample["transcript"]["events"]:
            if event["event"] == "model" and (usage := event["output"].get("usage")):
                answer = event["output"]["choices"][0]["message"]
                if (answer.get("id") or str(answer["content"])) in said:
                    counted.update(read_bill(usage, "input_tokens", "output_tokens"))
        yield counted


def read_completion(path: Path) -> Counts:
    """Count the last model call of a run of OpenHands, which repeats the whole conversation."""
    call = read_json(path)
    answer, usage = call["response"]["choices"][0]["message"], call["response"]["usage"]
    yield count_chat([*call["messages"], answer]) + read_bill(usage)


def read_events(path: Path) -> Counts:
    """Count the runs of an OpenHands evaluation: one answer per response, and its calls."""
    for run in read_rows(path):
        counted: Counter[str] = Counter()
        responses: dict[str, Row] = {}
        for event in run["history"]:
            if called := event.get("tool_call_metadata"):
                responses[called["model_response"]["id"]] = called["model_response"]
                counted["tool"] += "observation" in event
            elif event.get("action") in ("system", "message"):
                counted["system" if event["action"] == "system" else "user"] += 1
            elif event.get("observation") == "error":
                counted["user"] += 1
        for response in responses.values():
            counted += count_chat([response["choices"][0]["message"]])
            counted += read_bill(response["usage"])
        yield counted


def read_swe_agent(path: Path) -> Counts:
    yield count_chat(
        message for message in read_json(path)["history"] if not message.get("is_demo")
    )


def read_tau(path: Path) -> Counts:
    for run in read_json(path):
        yield count_chat(run["traj"])


def read_tau2(path: Path) -> Counts:
    """Count what the agent received: the simulated customer has calls and results of its own."""
    for run in read_json(path)["simulations"]:
        counted = Counter(system=1)
        for message in run["messages"]:
            customer = message["role"] == "user" or message.get("requestor") == "user"
            if not customer:
                counted += count_chat([message])
            elif message["role"] == "user" and not message.get("tool_calls"):
                counted["user"] += 1
            if message["role"] == "assistant" and message.get("usage"):
                counted += read_bill(message["usage"])
        yield counted


def read_locomo(path: Path) -> Counts:
    for sample in read_json(path):
        chat = sample["conversation"]
        numbers = (number for number in range(1, len(chat)) if f"session_{number}" in chat)
        turns = [turn for number in numbers for turn in chat[f"session_{number}"]]
        users = sum(turn["speaker"] == turns[0]["speaker"] for turn in turns)
        yield Counter(user=users, assistant=len(turns) - users)


def read_longmemeval(path: Path) -> Counts:
    for history in read_json(path):
        yield count_chat(turn for session in history["haystack_sessions"] for turn in session)


READERS: dict[str, Callable[[Path], Counts]] = {
    "gemini-cli": read_gemini,
    "inspect-ai/": read_inspect,
    "openhands/llm_completions/": read_completion,
    "openhands/": read_events,
    "swe-agent/": read_swe_agent,
    "tau-bench/": read_tau,
    "tau2-bench/": read_tau2,
    "locomo/": read_locomo,
    "longmemeval/": read_longmemeval,
}


if __name__ == "__main__":
    print_counts(count_file)
