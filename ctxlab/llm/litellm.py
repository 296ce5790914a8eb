"""A client that calls models of any provider through litellm, with retries.

litellm is imported with the first call. The retries of litellm and of the libraries that it uses are
switched off, so that an attempt is exactly one HTTP request and all attempts are counted.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
from typing_extensions import override

from ctxlab._utils.humanize import pluralize
from ctxlab.errors import ModelRequestRejected, ModelUnavailable, redact_urls
from ctxlab.llm.base import Embedding, OnReply, Replies, Reply, ReplyOrError, Request
from ctxlab.llm.concurrency import MAX_CONCURRENT_CALLS, map_unordered
from ctxlab.llm.costs import CostAwareClient, Reservation, max_token_count, worst_case_cost
from ctxlab.llm.error_classification import CallFailure, classify_error
from ctxlab.llm.lazy_litellm import load_litellm, start_import
from ctxlab.llm.reasoning import (
    find_provider,
    find_reasoning_return,
    messages_with_reasoning,
)
from ctxlab.llm.redaction import find_secrets
from ctxlab.llm.response_parsing import parse_embedding, parse_reply
from ctxlab.llm.streaming import STREAM_OPTIONS, StreamChannel, parse_stream, stream_in_thread
from ctxlab.llm.tool_images import move_tool_images
from ctxlab.messages.types import Usage
from ctxlab.tokens.models import find_model_without_warning

_log = logging.getLogger("ctxlab.llm")
_MAX_WAIT_SECONDS = 60.0
# Limits of one embedding request; OpenAI accepts 300,000 tokens and 2,048 strings.
_MAX_BATCH_TEXTS, _MAX_BATCH_CHARS = 256, 400_000
_Billed = TypeVar("_Billed", Reply, Embedding)


class _NoRetries(int):
    """The int 0, but truthy. litellm uses ``max_retries or 2`` for embeddings, which replaces 0 by 2."""

    def __bool__(self) -> bool:
        return True


class _AttemptFailed(Exception):
    """Error of one attempt to get a reply. ``__cause__`` is litellm's exception, if there is one."""

    def __init__(self, failure: CallFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.too_late = failure.retry_after > _MAX_WAIT_SECONDS
        self.retryable = failure.retry_class == "transient" and not self.too_late


class LiteLLMClient(CostAwareClient):
    """Thread-safe client that calls models through litellm.

    Temporary failures are retried: rate limits, server errors (5xx), failed connections and
    timeouts. The wait before the first retry is ``delay`` seconds, and each further wait is longer
    by the factor ``backoff``. If the provider asks for a longer wait, that wait is used. A random
    time of up to ``delay`` seconds is added to each wait. The logger ``ctxlab.llm`` logs the first
    retry of a call as a warning and further retries as info.

    ``ModelRequestRejected`` is raised without a retry for a wrong API key, an unknown model or an
    invalid request. ``ModelUnavailable`` is raised when the last retry has failed. It is raised
    without a retry if a request is too long or violates the provider's policy, if a reply is
    unreadable, and if the provider asks for a wait of more than a minute. After ``patience``
    consecutive calls without a reply, ``ModelRequestRejected`` is raised, so that an evaluation
    stops when a provider is down. Here, the refusal of a request that is too long or violates the
    policy counts as a reply. A stream that is not read to its end counts as an interrupted
    attempt. One HTTP request for embeddings contains up to 256 strings.

    Parameters
    ----------
    api_base : str, optional
        Base URL of the API. By default, the URL of the provider that the prefix of the model's name
        selects, such as ``openai/``.
    api_key : str, optional
        API key. By default, litellm reads the key from the environment, such as ``OPENAI_API_KEY``.
    timeout : float, optional
        Maximum duration of one attempt in seconds; for a stream, maximum wait for each piece.
    retries : int, optional
        Maximum number of retries per call, in addition to the first attempt.
    delay : float, optional
        Wait before the first retry in seconds.
    backoff : float, optional
        Factor by which each further wait is longer than the previous one.
    concurrency : int, optional
        Maximum number of concurrent calls, over all threads that use this client.
    patience : int, optional
        Number of consecutive calls without a reply after which ``ModelRequestRejected`` is raised;
        0 for no limit.
    **options : object
        Further arguments for litellm with each call, such as ``reasoning_effort`` or
        ``custom_llm_provider``.

    Examples
    --------
    >>> LiteLLMClient(api_base="http://localhost:8000/v1", api_key="secret", retries=5)
    LiteLLMClient(api_base='http://localhost:8000/v1', retries=5)
    """

    def __init__(
        self,
        api_base: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 3,
        delay: float = 1.0,
        backoff: float = 2.0,
        concurrency: int = MAX_CONCURRENT_CALLS,
        patience: int = 5,
        **options: Any,
    ) -> None:
        super().__init__()
        self.api_base = api_base
        self.api_key = api_key
        self.timeout = timeout
        self.retries = retries
        self.delay = delay
        self.backoff = backoff
        self.concurrency = concurrency
        self.patience = patience
        self.options = options
        self._slots = threading.BoundedSemaphore(concurrency)

    def __repr__(self) -> str:
        """Show the settings that differ from their defaults, without credentials."""
        default = LiteLLMClient()._settings()
        said = {k: v for k, v in self._settings().items() if k in default and v != default[k]}
        said.pop("api_key", None)
        said = {k: redact_urls(v) if isinstance(v, str) else v for k, v in said.items()}
        # Options may contain credentials under many names, so their values are hidden.
        parts = [f"{k}={v!r}" for k, v in said.items()] + [f"{k}=…" for k in self.options]
        return f"LiteLLMClient({', '.join(parts)})"

    def __reduce__(self) -> tuple[Callable[[], LiteLLMClient], tuple[()]]:
        """Pickle the settings only, so that the copy counts its own calls."""
        return functools.partial(LiteLLMClient, **self._settings()), ()

    @override
    def split_for_workers(self, workers: int, /) -> LiteLLMClient:
        # With more workers than concurrent calls, each worker makes one call at a time.
        at_once = max(1, self.concurrency // workers)
        return LiteLLMClient(**{**self._settings(), "concurrency": at_once})

    def warm_up(self) -> None:
        """Start importing litellm in the background, so that the first call starts sooner."""
        start_import()

    @override
    def complete_each(self, requests: Sequence[Request], /, on_reply: OnReply = None) -> Replies:
        if requests:
            load_litellm()
        yield from map_unordered(self._complete, requests, self.concurrency, on_reply)

    @override
    def stream(self, request: Request, /) -> Generator[str | Reply, None, None]:
        load_litellm()

        def ask(channel: StreamChannel) -> ReplyOrError:
            return self._complete(request, channel.cancelled, channel)

        yield from stream_in_thread(ask)

    @override
    def embed(self, model: str, texts: Sequence[str], /) -> Embedding:
        batches = list(_split_batches(texts))
        if batches:
            load_litellm()
        ask = functools.partial(self._embed, model)
        replies = sorted(map_unordered(ask, batches, self.concurrency), key=itemgetter(0))
        parts = [embedding for _, embedding in replies]
        vectors = [vector for part in parts for vector in part.vectors]
        usage, usd = Usage(sum(part.usage.input for part in parts)), sum(part.usd for part in parts)
        return Embedding(vectors, usage, usd, sum(part.attempts for part in parts))

    def _complete(
        self, request: Request, cancelled: threading.Event, channel: StreamChannel | None = None
    ) -> ReplyOrError:
        model, prices = request.model, find_model_without_warning(request.model).prices
        provider = find_provider(model, self.options.get("custom_llm_provider"))
        # A reply's reasoning is stored only if it can be sent back.
        stored = provider if find_reasoning_return(model, provider) else ""
        wanted = {
            "model": model,
            "messages": move_tool_images(
                messages_with_reasoning(request.messages, model, provider), model, provider
            ),
            "tools": list(request.tools) or None,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            **({} if channel is None else STREAM_OPTIONS),
        }
        sent = {name: value for name, value in wanted.items() if value is not None}

        def send() -> Reply:
            response = self._send(load_litellm().completion, sent)
            if channel is None:
                return parse_reply(prices, response, stored)
            return parse_stream(prices, channel, response, stored)

        worst = worst_case_cost(request) if self.cost_limit else 0.0
        try:
            reply, attempts = self._call_with_retries(model, send, cancelled, worst)
        except ModelUnavailable as error:
            return error
        return msgspec.structs.replace(reply, attempts=attempts)

    def _embed(self, model: str, texts: list[str], cancelled: threading.Event) -> Embedding:
        price = _find_embedding_price(model)

        def send() -> Embedding:
            response = self._send(load_litellm().embedding, {"model": model, "input": texts})
            return parse_embedding(len(texts), price, response)

        worst = price * sum(max_token_count(model, text) for text in texts)
        embedding, attempts = self._call_with_retries(model, send, cancelled, worst)
        return embedding._replace(attempts=attempts)

    def _send(self, function: Callable[..., Any], wanted: dict[str, Any]) -> Any:
        settings = {"api_base": self.api_base, "api_key": self.api_key, **self.options}
        settings |= {"timeout": float(self.timeout), "num_retries": 0, "max_retries": _NoRetries(0)}
        return function(**wanted | settings)

    def _call_with_retries(
        self, model: str, send: Callable[[], _Billed], cancelled: threading.Event, worst: float
    ) -> tuple[_Billed, int]:
        """Call ``send``, with retries if necessary; return its reply and the number of attempts.

        ``worst`` is the worst-case cost of an attempt in USD. It is reserved in the cost limit before
        each attempt.
        """
        import tenacity

        backoff = tenacity.wait_exponential(self.delay, _MAX_WAIT_SECONDS, self.backoff)
        jitter = tenacity.wait_random(0, self.delay)
        last_attempt = tenacity.stop_after_attempt(self.retries + 1)

        def wait(state: Any) -> float:
            asked: float = state.outcome.exception().failure.retry_after
            return max(asked, backoff(state)) + jitter(state)

        def warn(state: Any) -> None:
            level = logging.WARNING if state.attempt_number == 1 else logging.INFO
            text = "%s: attempt %d of %d failed, next attempt in %.2f s: %s"
            told = state.attempt_number, self.retries + 1, state.upcoming_sleep
            _log.log(level, text, model, *told, state.outcome.exception())

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: getattr(error, "retryable", False)),
            stop=last_attempt | tenacity.stop_when_event_set(cancelled),
            wait=wait,
            sleep=tenacity.sleep_using_event(cancelled),
            before_sleep=warn,
            reraise=True,
        )
        try:
            with self._slots:  # also occupied between retries, so a rate-limited client slows down
                reply = retrying(self._attempt, model, send, cancelled, worst)
        except _AttemptFailed as error:
            failed, failure, cause = error, error.failure, error.__cause__
        else:
            self._usage.end_call(reached=True)
            return reply, retrying.statistics["attempt_number"]
        attempts = retrying.statistics["attempt_number"] - (failure.outcome == "unsent")
        if failure.retry_class == "refused":
            if (
                failure.outcome == "unsent"
                and self.api_key is None
                and (keys := _unset_keys(model))
            ):
                hint = f"set the environment variable {' or '.join(keys)}"
                raise ModelRequestRejected(f"{model}: no API key is set; {hint}") from cause
            said = f"{model} rejected the request: {failure.reason}"
            advice = "check the model's name, the API key and the client's settings"
            raise ModelRequestRejected(f"{said}; {advice}") from cause
        last = text = failure.reason
        if failed.too_late:
            last = text = f"{last}; the provider asks to wait {failure.retry_after:,.0f} s"
        elif failed.retryable:
            text = f"no reply after {pluralize(attempts, 'attempt')}: {last}"
        reached = failure.retry_class == "declined" and failure.outcome != "interrupted"
        if not cancelled.is_set() and self._usage.end_call(reached=reached) >= self.patience > 0:
            text = f"{self.patience} calls in a row failed (last error: {last})"
            raise ModelRequestRejected(f"{model}: {text}; try again later") from cause
        raise ModelUnavailable(f"{model}: {text}", attempts) from cause

    def _attempt(
        self, model: str, send: Callable[[], _Billed], cancelled: threading.Event, worst: float
    ) -> _Billed:
        """Send one HTTP request and record its usage and cost."""
        if cancelled.is_set():
            raise _AttemptFailed(CallFailure("the call was cancelled", "declined", "unsent"))
        limit = self.cost_limit
        paid = limit.reserve(model, worst, cancelled) if limit else nullcontext(Reservation(worst))
        with paid as reservation:
            try:
                reply = send()
            except Exception as error:
                failure = classify_error(error, find_secrets(self._settings()))
                if failure.outcome != "unsent":
                    self._usage.add_attempt(**{failure.outcome: 1})
                if failure.outcome != "interrupted":
                    reservation.usd = 0.0
                raise _AttemptFailed(failure) from error
            usage = reply.usage
            billed = {"prompt_tokens": usage.total_input, "completion_tokens": usage.output}
            self._usage.add_attempt(answered=1, **billed, usd=reply.usd)
            if usage.total_input:  # 0: the provider reports no usage
                reservation.usd = reply.usd
            return reply

    def _settings(self) -> dict[str, Any]:
        names = "api_base api_key timeout retries delay backoff concurrency patience"
        return {**{name: getattr(self, name) for name in names.split()}, **self.options}


def _unset_keys(model: str) -> list[str]:
    """Return the environment variables of which one must contain the key of a model, if none does."""
    missing = load_litellm().validate_environment(model)["missing_keys"]
    return [name for name in missing if name.endswith("_KEY")]


def _find_embedding_price(model: str) -> float:
    """Return the price of an input token in USD from litellm's table; nan if it is unknown.

    ``find_model`` cannot be used, because it knows chat models only.
    """
    try:
        return float(load_litellm().get_model_info(model)["input_cost_per_token"])
    except Exception:  # litellm raises a plain Exception for an unknown model
        return math.nan


def _split_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        size += len(text)
        if batch and (len(batch) == _MAX_BATCH_TEXTS or size > _MAX_BATCH_CHARS):
            yield batch
            batch, size = [], len(text)
        batch.append(text)
    if batch:
        yield batch
