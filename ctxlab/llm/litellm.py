"""A client for any model of any provider, through litellm, with retries.

litellm is imported with the first call, from its own files and without output. The retries of
litellm and of the libraries below it are off: an attempt is one HTTP request, and all attempts are
counted.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from typing import Any

from ctxlab.errors import ModelRequestRejected, ModelUnavailable
from ctxlab.llm.base import Embedding, Reply, Request
from ctxlab.llm.concurrency import MAX_CONCURRENT_CALLS, BatchMixin, map_unordered
from ctxlab.llm.costs import (
    CostLimit,
    Reservation,
    ReserveAttempt,
    UsageTotals,
    UsageTracker,
    max_token_count,
    worst_case_cost,
)
from ctxlab.llm.error_classification import CallFailure, classify_error
from ctxlab.llm.lazy_litellm import load_litellm as _load_litellm
from ctxlab.llm.lazy_litellm import start_import as _start_import
from ctxlab.llm.response_parsing import BilledResponse, parse_embedding, parse_reply
from ctxlab.llm.streaming import STREAM_OPTIONS, StreamChannel, parse_stream, stream_in_thread
from ctxlab.messages.types import Usage
from ctxlab.tokens.models import find_model

_log = logging.getLogger("ctxlab.llm")
_MAX_WAIT_SECONDS = 60.0
# Limits of one embedding request; OpenAI accepts 300,000 tokens and 2,048 texts.
_MAX_BATCH_TEXTS, _MAX_BATCH_CHARS = 256, 400_000


class _NoRetries(int):
    """Zero retries as a truthy int: litellm evaluates ``max_retries or 2`` for embeddings."""

    def __bool__(self) -> bool:
        return True


class _RetryableError(Exception):
    """A failed attempt that is worth a retry."""

    def __init__(self, reason: str, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(reason)


class LiteLLMClient(BatchMixin):
    """Client that calls models through litellm; it is thread-safe.

    Temporary failures are retried: rate limits, server errors (5xx), failed connections and
    timeouts. The wait is ``delay`` seconds, multiplied by ``backoff`` after each further failure,
    plus random jitter of up to ``delay`` seconds; it is at least as long as the provider asks for.
    The logger ``ctxlab.llm`` logs the first retry of a call as a warning and the others as info.

    ``ModelRequestRejected`` is raised at once for a wrong key, an unknown model or an invalid
    request. ``ModelUnavailable`` is raised when the retries are used up. It is raised at once for a
    request that is too long or against the provider's policy, for a reply that cannot be read, and
    if the provider asks to wait for more than a minute. After ``patience`` consecutive calls
    without a reply, ``ModelRequestRejected`` is raised, so that a run does not wait call by call
    for a provider that is down.

    Parameters
    ----------
    api_base : str, optional
        Base URL of the API; None is the provider's own. The prefix of a model's name selects the
        provider (``openai/…``).
    api_key : str, optional
        API key; None reads the environment, as litellm does (``OPENAI_API_KEY`` …).
    timeout : float, optional
        Maximum seconds for one attempt.
    retries : int, optional
        Number of attempts after the first.
    delay : float, optional
        Seconds before the first retry.
    backoff : float, optional
        Factor between successive delays.
    concurrency : int, optional
        Maximum number of concurrent calls, over all threads that use this client.
    patience : int, optional
        Number of consecutive calls without a reply, the last of which is rejected; 0 for no limit.
    **options : object
        Passed to litellm with each call, such as ``reasoning_effort`` or ``custom_llm_provider``.

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
        self._usage_tracker = UsageTracker()

    def __repr__(self) -> str:
        default = LiteLLMClient()._settings()
        said = {k: v for k, v in self._settings().items() if k in default and v != default[k]}
        said.pop("api_key", None)
        # Options may contain credentials under many names, so their values are hidden.
        parts = [f"{k}={v!r}" for k, v in said.items()] + [f"{k}=…" for k in self.options]
        return f"LiteLLMClient({', '.join(parts)})"

    def __reduce__(self) -> tuple[Callable[[], LiteLLMClient], tuple[()]]:
        return functools.partial(LiteLLMClient, **self._settings()), ()

    def split_for_workers(self, workers: int) -> LiteLLMClient:
        """Return a client for each of several worker processes, which share ``concurrency``.

        If there are more workers than concurrent calls, each worker makes one call at a time.

        Parameters
        ----------
        workers : int
            Number of worker processes.

        Returns
        -------
        LiteLLMClient
            Client for one worker.
        """
        at_once = max(1, self.concurrency // workers)
        return LiteLLMClient(**{**self._settings(), "concurrency": at_once})

    @property
    def totals(self) -> UsageTotals:
        """Totals of all calls of this client; a copy in another process counts its own calls."""
        return self._usage_tracker.totals

    def warm_up(self) -> None:
        """Start the import of litellm in the background, so that the first call need not wait for it."""
        _start_import()

    def complete_each(
        self,
        requests: Sequence[Request],
        /,
        on_reply: Callable[[int, Reply | ModelUnavailable], object] | None = None,
        cost_limit: CostLimit | None = None,
    ) -> Generator[tuple[int, Reply | ModelUnavailable], None, None]:
        """Yield the replies as they arrive.

        Parameters
        ----------
        requests : sequence of Request
            The requests.
        on_reply : callable, optional
            Called with index and reply before the reply is yielded, also for calls that were still
            running when the caller left; see ``map_unordered``.
        cost_limit : CostLimit, optional
            The limit that pays for each attempt.

        Yields
        ------
        tuple of int and (Reply or ModelUnavailable)
            Index of the request and its reply.

        Raises
        ------
        ModelRequestRejected
            If a request or the key is not accepted.
        """
        if requests:
            _load_litellm()
        ask = functools.partial(self._complete, cost_limit)
        with closing(map_unordered(ask, requests, self.concurrency, on_reply)) as replies:
            yield from replies

    def stream(
        self, request: Request, /, cost_limit: CostLimit | None = None
    ) -> Generator[str | Reply, None, None]:
        """Yield pieces of the text as they arrive; last, the whole reply.

        A failed call is retried as long as no piece was yielded; after that, ``ModelUnavailable``
        is raised. ``timeout`` bounds the wait for each piece. A reply that is not read to its end
        counts as interrupted.

        Parameters
        ----------
        request : Request
            The request.
        cost_limit : CostLimit, optional
            The limit that pays for each attempt.

        Yields
        ------
        str or Reply
            Pieces of the text; last, the whole reply.
        """
        _load_litellm()

        def ask(channel: StreamChannel) -> Reply | ModelUnavailable:
            return self._complete(cost_limit, request, channel.cancelled, channel)

        with closing(stream_in_thread(ask)) as pieces:
            yield from pieces

    def embed(
        self, model: str, texts: Sequence[str], /, cost_limit: CostLimit | None = None
    ) -> Embedding:
        """Return one vector per text, with up to 256 texts per request.

        Parameters
        ----------
        model : str
            Name of the embedding model.
        texts : sequence of str
            The texts.
        cost_limit : CostLimit, optional
            The limit that pays for each attempt.

        Returns
        -------
        Embedding
            The vectors, in the order of the texts.
        """
        batches = list(_split_batches(texts))
        ask = functools.partial(self._embed, model, cost_limit)
        found: list[Embedding] = [Embedding([])] * len(batches)
        if batches:
            _load_litellm()
        with closing(map_unordered(ask, batches, self.concurrency)) as each:
            for place, embedding in each:
                found[place] = embedding
        return Embedding(
            [vector for embedding in found for vector in embedding.vectors],
            Usage(sum(embedding.usage.input for embedding in found)),
            sum(embedding.usd for embedding in found),
            sum(embedding.attempts for embedding in found),
        )

    def _complete(
        self,
        cost_limit: CostLimit | None,
        request: Request,
        cancelled: threading.Event,
        stream_channel: StreamChannel | None = None,
    ) -> Reply | ModelUnavailable:
        wanted: dict[str, Any] = {"messages": [message.to_dict() for message in request.messages]}
        if request.tools:
            wanted["tools"] = list(request.tools)
        if request.max_tokens is not None:
            wanted["max_tokens"] = request.max_tokens
        if request.temperature is not None:
            wanted["temperature"] = request.temperature
        read = functools.partial(parse_reply, prices := find_model(request.model).prices)
        if stream_channel is not None:
            wanted |= STREAM_OPTIONS
            read = functools.partial(parse_stream, prices, stream_channel)
        ask = functools.partial(_load_litellm().completion, model=request.model, **wanted)
        reserve = (
            None
            if cost_limit is None
            else cost_limit.bind_reserve(request.model, worst_case_cost(request), cancelled)
        )
        try:
            billed, attempts = self._call_with_retries(request.model, ask, read, cancelled, reserve)
        except ModelUnavailable as error:
            return error
        message, finish = billed.result
        return Reply(message, billed.usage, billed.usd, finish, attempts)

    def _embed(
        self, model: str, cost_limit: CostLimit | None, texts: list[str], cancelled: threading.Event
    ) -> Embedding:
        price = _find_embedding_price(model)
        ask = functools.partial(_load_litellm().embedding, model=model, input=texts)
        read = functools.partial(parse_embedding, len(texts), price)
        most = price * sum(max_token_count(model, text) for text in texts)
        reserve = None if cost_limit is None else cost_limit.bind_reserve(model, most, cancelled)
        billed, attempts = self._call_with_retries(model, ask, read, cancelled, reserve)
        return Embedding(billed.result, billed.usage, billed.usd, attempts)

    def _call_with_retries(
        self,
        model: str,
        ask: Callable[..., Any],
        read: Callable[[Any], BilledResponse],
        cancelled: threading.Event,
        reserve: ReserveAttempt | None,
    ) -> tuple[BilledResponse, int]:
        """Return the response and the number of attempts; book the cost of each attempt."""
        import tenacity

        settings = {"api_base": self.api_base, "api_key": self.api_key, **self.options}
        settings |= {"timeout": float(self.timeout), "num_retries": 0, "max_retries": _NoRetries(0)}
        attempts, silent = 0, False

        def once() -> BilledResponse:
            if cancelled.is_set():
                raise ModelUnavailable(f"{model}: the call was cancelled", attempts)
            with nullcontext() if reserve is None else reserve() as paid:
                return attempt(paid)

        def attempt(paid: Reservation | None) -> BilledResponse:
            nonlocal attempts, silent
            attempts += 1
            try:
                billed = read(ask(**settings))
            except Exception as error:
                failure = classify_error(error)
                if paid is not None and failure.outcome != "interrupted":
                    paid.usd = 0.0
                if failure.outcome == "unsent":
                    attempts -= 1
                elif failure.outcome == "failed":
                    self._usage_tracker.add_failed()
                else:
                    self._usage_tracker.add_interrupted()
                silent = failure.retry_class != "declined" or failure.outcome == "interrupted"
                raise _to_exception(model, failure, attempts) from error
            self._usage_tracker.add_answered(billed.usage, billed.usd)
            if paid is not None and billed.usage.total_input:  # 0: the provider reports no usage
                paid.usd = billed.usd
            return billed

        def wait(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.retry_after if isinstance(error, _RetryableError) else 0.0
            return max(asked, float(backing_off(state))) + float(jitter(state))

        def warn(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            _log.log(
                logging.WARNING if attempts == 1 else logging.INFO,
                "%s: attempt %d of %d failed, next attempt in %.2f s: %s",
                model, attempts, self.retries + 1, state.upcoming_sleep, error,
            )  # fmt: skip

        backing_off = tenacity.wait_exponential(
            multiplier=self.delay, exp_base=self.backoff, max=_MAX_WAIT_SECONDS
        )
        jitter = tenacity.wait_random(0, self.delay)
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self.retries + 1)
            | tenacity.stop_when_event_set(cancelled),
            wait=wait,
            sleep=tenacity.sleep_using_event(cancelled),
            retry=tenacity.retry_if_exception_type(_RetryableError),
            before_sleep=warn,
            reraise=True,
        )
        try:
            with self._slots:  # also held between retries, so a rate-limited client slows down
                return retrying(once), attempts
        except _RetryableError as error:
            last, cause = str(error), error.__cause__
            tried = f"{attempts} attempt{'' if attempts == 1 else 's'}"
            unanswered = ModelUnavailable(f"{model}: no reply after {tried}: {last}", attempts)
        except ModelUnavailable as error:
            last, cause = str(error).removeprefix(f"{model}: "), error.__cause__
            unanswered = error
        if cancelled.is_set():
            raise unanswered from cause
        if not silent:
            self._usage_tracker.reset_unanswered()
        elif self._usage_tracker.add_unanswered() >= self.patience > 0:
            raise ModelRequestRejected(
                f"{model}: no reply to {self.patience} calls in a row (last error: {last})"
            ) from cause
        raise unanswered from cause

    def _settings(self) -> dict[str, Any]:
        names = "api_base api_key timeout retries delay backoff concurrency patience"
        return {**{name: getattr(self, name) for name in names.split()}, **self.options}


def _to_exception(model: str, failure: CallFailure, attempts: int) -> Exception:
    """Return the exception for a failure."""
    if failure.retry_class == "refused":
        return ModelRequestRejected(
            f"{model} rejected the request: {failure.reason}; check the model's name, the API key "
            "and the client's settings"
        )
    if failure.retry_after > _MAX_WAIT_SECONDS:
        asked = f"; the provider asks to wait {failure.retry_after:,.0f} s"
        return ModelUnavailable(f"{model}: {failure.reason}{asked}", attempts)
    if failure.retry_class == "transient":
        return _RetryableError(failure.reason, failure.retry_after)
    return ModelUnavailable(f"{model}: {failure.reason}", attempts)


def _find_embedding_price(model: str) -> float:
    """Return the price of a token from litellm's table; ``find_model`` knows chat models only."""
    try:
        return float(_load_litellm().get_model_info(model)["input_cost_per_token"])
    except Exception:  # litellm raises a plain Exception for an unknown model
        return math.nan


def _split_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == _MAX_BATCH_TEXTS or size + len(text) > _MAX_BATCH_CHARS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch
