"""The checks of a probe: one tiny question for each feature of a model at its host.

In: a probe of a route. Out: findings, one after another. A feature fails only if plain
text works and the feature does not: if the host refuses it, or twice if a model answers
otherwise than asked or the error may pass by itself. What takes too long proves
nothing. Questions name nothing that a model could guess: what the answer must hold
stands in the tool, in the schema or in the image.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from llm.error_texts.for_staff import add_host_message, add_status, describe_error
from llm.errors import (
    BadRequest,
    ContentPolicy,
    ContextTooLarge,
    InvalidKey,
    LLMError,
    ModelNotAvailable,
    NoFreeConnection,
    QuotaExhausted,
    RateLimited,
)
from llm.keys.refusals import may_try_again
from llm.keys.selection import verdict_of
from llm.probing.findings import (
    CUT,
    FEATURES,
    NO_KEY,
    NO_TEXT,
    NOT_REACHED,
    TIME_IS_UP,
    Feature,
    Finding,
    fails,
    unclear,
    untested,
    works,
)
from llm.probing.image import RED_SQUARE
from llm.probing.reply_checks import (
    SCHEMA,
    TOOL,
    follows_schema,
    has_call,
    has_two_calls,
)
from llm.probing.tiny_request import SILENCE, Reply, ask, begin_reply
from llm.provider import Route
from llm.wire.items import Item, function_call_output, user_message

PROBE_TIME = 300.0  # seconds; what is not tried by then is "not tested"
MIN_NEXT_TIME = 10.0  # seconds for the question after a cancelled answer

#: Errors that say nothing about a feature: they would befall any request.
_GENERAL = (
    InvalidKey,
    QuotaExhausted,
    RateLimited,
    NoFreeConnection,
    ContentPolicy,
    ContextTooLarge,
)
#: Fields that every question has; their refusal says nothing about a feature.
_COMMON_FIELDS = frozenset(
    {"stream", "stream_options", "max_tokens", "max_completion_tokens"}
    | {"max_output_tokens", "model", "store"}
)
_FORMAT = {"type": "json_schema", "name": "report", "schema": SCHEMA, "strict": True}
_REFUSED = gettext_noop("Refused: %(why)s")
_BREAKS = gettext_noop("Failed twice, while plain text works: %(why)s")
_GENERAL_ERROR = gettext_noop("The provider refused for another reason: %(why)s")
_HOST_FAILS = gettext_noop("The host did not answer plain text either: %(why)s")

Check = Callable[[], Awaitable[Finding]]


async def probe_features(probe: FeatureProbe) -> AsyncGenerator[Finding, None]:
    """Yield a finding for each of `FEATURES`, in order. Raises no LLMError."""
    checks: dict[Feature, Check] = {
        "text": probe.check_text,
        "stream": probe.check_stream,
        "usage": probe.check_usage,
        "tool": probe.check_tool,
        "parallel_tools": probe.check_parallel_tools,
        "json_schema": probe.check_json_schema,
        "image": probe.check_image,
        "reasoning_replay": probe.check_reasoning_replay,
        "cancel": probe.check_cancel,
    }
    end = asyncio.get_running_loop().time() + PROBE_TIME
    for feature in FEATURES:
        yield await _checked(feature, checks[feature], probe, end)


async def _checked(
    feature: Feature, check: Check, probe: FeatureProbe, end: float
) -> Finding:
    if probe.is_hopeless:
        return untested(feature, probe.why_hopeless)
    if asyncio.get_running_loop().time() >= end:
        return untested(feature, TIME_IS_UP)
    try:
        async with asyncio.timeout_at(end):
            return await check()
    except TimeoutError:
        return untested(feature, TIME_IS_UP)


@dataclass(slots=True)
class FeatureProbe:
    """Asks the questions and keeps the replies, which are recorded as model calls."""

    route: Route
    others: Sequence[Route] = ()  # with further keys, if the host refuses the first
    key_names: Mapping[int | None, str] = field(default_factory=dict)  # by key id
    replies: list[Reply] = field(default_factory=list)
    refused: list[tuple[Route, LLMError]] = field(default_factory=list)
    is_hopeless: bool = False  # not even text works
    why_hopeless: str = NOT_REACHED
    _refusals: list[str] = field(default_factory=list)  # in words
    _text: Reply | None = None
    _stream: Reply | None = None
    _has_tools: bool = False
    _plain_streams: bool = False  # the host refuses to answer without a stream
    _refuses_streams: bool = False

    async def check_text(self) -> Finding:
        """With the first key that the host accepts; all further questions use it."""
        reply = self._text = await self._ask_with_key()
        while reply.error and verdict_of(reply.error) is not None:
            self.refused.append((self.route, reply.error))
            self._refusals.append(f"{self._key_name()}: {self._why(reply.error)}")
            if not self.others:
                return self._judge_keys(reply.error)
            self.route, *self.others = self.others
            reply = self._text = await self._ask_with_key()
        if reply.error:
            return await self._judge_text(reply)
        return self._judge_answer(reply)

    def _judge_answer(self, reply: Reply) -> Finding:
        self._text = reply
        if not reply.text:
            return _no_text("text", reply)
        values = {"seconds": f"{reply.call.latency or 0.0:.1f}"}
        if not self._refusals:
            return works("text", _ANSWERED, **values)
        values |= {"key": self._key_name(), "refused": " ".join(self._refusals)}
        return works("text", _ANSWERED_BY_OTHER, **values)

    async def _ask_with_key(self) -> Reply:
        reply = await self._ask_plainly()
        if reply.error and may_try_again(self.route, reply.call):
            return await self._ask_plainly()
        return reply

    def _judge_keys(self, error: LLMError) -> Finding:
        """Nothing is known of the model: no key got an answer."""
        self.is_hopeless, self.why_hopeless = True, NO_KEY
        refused = " ".join(self._refusals)
        if isinstance(error, RateLimited):
            return unclear("text", _ALL_BUSY, refused=refused)
        return untested("text", _ALL_REFUSED, refused=refused)

    async def _judge_text(self, reply: Reply) -> Finding:
        """A host may answer only in streams; else nothing will work."""
        assert reply.error is not None
        error, why = reply.error, self._why(reply.error)
        if reply.is_cut:
            return unclear("text", CUT)
        if not isinstance(error, _GENERAL):
            self._plain_streams = True
            streamed = await self._ask_plainly()
            if not streamed.error:
                return await self._judge_unstreamed(reply, streamed)
        self.is_hopeless = True
        passes = isinstance(error, RateLimited | NoFreeConnection)
        return (unclear if passes else fails)("text", "%(why)s", why=why)

    async def _judge_unstreamed(self, reply: Reply, streamed: Reply) -> Finding:
        """Whether the host needs a stream, or the first question came too early: it had
        to load the model."""
        assert reply.error is not None
        if reply.has_timed_out:
            return self._judge_answer(streamed)
        again = await self._ask_plainly(stream=False)
        if again.error:
            return fails("text", _ONLY_STREAMS, why=self._why(reply.error))
        self._plain_streams = False
        return self._judge_answer(again)

    async def check_stream(self) -> Finding:
        question = "Count from 1 to 20 in digits, with spaces between them."
        reply = self._stream = await self._ask(question)
        if reply.error:
            found = await self._judge_error("stream", reply, question)
            self._refuses_streams = found.outcome == "fails" and not self._plain_streams
            return found
        if not reply.text:
            return _no_text("stream", reply)
        if reply.text_pieces < 2:
            return fails("stream", _ONE_PIECE)
        return works("stream", _PIECES, count=reply.text_pieces)

    async def check_usage(self) -> Finding:
        reply = self._stream
        if reply is None or reply.error:
            return untested("usage", _NO_STREAM)
        usage = reply.builder.call_usage
        if not usage.input_tokens or not usage.output_tokens:
            return fails("usage", _NO_USAGE)
        counts = {"input": usage.input_tokens, "output": usage.output_tokens}
        return works("usage", _USAGE, **counts)

    async def check_tool(self) -> Finding:
        question = "What is the code of the drawer 'north'? Call look_up_code."
        reply = await self._ask(question, tools=[TOOL])
        if reply.error:
            return await self._judge_error("tool", reply, question, tools=[TOOL])
        if not has_call(reply) and not reply.is_cut:
            reply = await self._insist_on_call(reply, question)
        if not has_call(reply):
            if reply.is_cut or reply.error:
                return unclear("tool", CUT if reply.is_cut else _ONLY_TEXT)
            return fails("tool", _WRONG_CALL if reply.calls else _NO_CALL)
        outputs = [function_call_output(c["call_id"], "VX-91") for c in reply.calls]
        items = [user_message(question), *reply.items, *outputs]
        ending = await self._ask_items(items, tools=[TOOL])
        if ending.error:
            return await self._judge_items("tool", ending, items, tools=[TOOL])
        self._has_tools = True
        if "VX-91" not in ending.text:
            return works("tool", _CALLED_ONLY)
        return works("tool", _CALLED)

    async def _insist_on_call(self, reply: Reply, question: str) -> Reply:
        """The reply with a forced call; `reply`, if the host does not force calls."""
        forced = {"tools": [TOOL], "tool_choice": "required"}
        again = await self._ask(question, **forced)
        is_refused = type(again.error) in (BadRequest, ModelNotAvailable)
        return reply if is_refused else again

    async def check_parallel_tools(self) -> Finding:
        feature: Feature = "parallel_tools"
        if not self._has_tools:
            return untested(feature, _NO_TOOLS)
        question = (
            "What are the codes of the drawers 'north' and 'south'? Call look_up_code"
            " for both at once, in this answer, not one after the other."
        )
        options: dict[str, Any] = {"tools": [TOOL], "parallel_tool_calls": True}
        reply = await self._ask_twice(question, has_two_calls, **options)
        if reply.error:
            return await self._judge_error(feature, reply, question, **options)
        if reply.is_cut and not has_two_calls(reply):
            return unclear(feature, CUT)
        if not has_two_calls(reply):
            return fails(feature, _ONE_CALL)
        return works(feature, _CALLS, count=len(reply.calls))

    async def check_json_schema(self) -> Finding:
        question = "Give me a report about nothing in particular. Make up the values."
        options = {"text": {"format": _FORMAT}}
        reply = await self._ask_twice(question, follows_schema, **options)
        if reply.error:
            return await self._judge_error("json_schema", reply, question, **options)
        if reply.is_cut:
            return unclear("json_schema", CUT)
        if follows_schema(reply):
            return works("json_schema", _FOLLOWS)
        return fails("json_schema", _IGNORES_SCHEMA)

    async def check_image(self) -> Finding:
        items = [_image_question()]
        reply = await self._ask_items(items)
        if reply.error:
            return await self._judge_items("image", reply, items)
        if not reply.text:
            return unclear("image", CUT if reply.is_cut else NO_TEXT)
        if "red" not in reply.text.lower():
            return unclear("image", _NOT_RED)
        return works("image", _RED)

    async def check_reasoning_replay(self) -> Finding:
        feature: Feature = "reasoning_replay"
        question = user_message("What is 27 * 43? Think, then give the number.")
        options = self._reasoning_options()
        reply = await self._ask_items([question], **options)
        if reply.error:
            why = self._why(reply.error)
            return unclear(feature, _GENERAL_ERROR, why=why)
        if not reply.has_reasoning:
            return untested(feature, _NO_REASONING)
        reasons = {"reasoning": True}
        items = [question, *reply.items, user_message("Add 1 to it.")]
        ending = await self._ask_items(items, **options)
        if ending.error:
            found = await self._judge_items(feature, ending, items, **options)
        elif not ending.text:
            found = _no_text(feature, ending)
        else:
            found = works(feature, _REPLAYED)
        return Finding(feature, found.outcome, found.message, found.values, reasons)

    async def check_cancel(self) -> Finding:
        if self._refuses_streams:
            return untested("cancel", _NO_STREAM_TO_CANCEL)
        question = "Write the numbers from 1 to 2000, one on each line, nothing else."
        reply = await self._ask(question, stop_after=1, max_output_tokens=4096)
        if reply.error:
            return unclear("cancel", _GENERAL_ERROR, why=self._why(reply.error))
        if not reply.is_stopped:
            return unclear("cancel", _TOO_SHORT)
        usual = (self._text.call.latency if self._text else None) or 0.0
        limit = min(SILENCE, max(MIN_NEXT_TIME, 5 * usual))
        after = await self._ask_plainly(time_limit=limit)
        if isinstance(after.error, _GENERAL):
            return unclear("cancel", _GENERAL_ERROR, why=self._why(after.error))
        if after.error:
            return fails("cancel", _GOES_ON, why=self._why(after.error))
        return works("cancel", _STOPPED)

    # Questions

    async def _ask(self, question: str, **options: Any) -> Reply:
        return await self._ask_items([user_message(question)], **options)

    async def _ask_twice(
        self, question: str, is_right: Callable[[Reply], bool], **options: Any
    ) -> Reply:
        """The second reply if the first is whole and not right: models have moods."""
        reply = await self._ask(question, **options)
        if reply.error or reply.is_cut or is_right(reply):
            return reply
        return await self._ask(question, **options)

    async def _ask_plainly(
        self, time_limit: float = SILENCE, stream: bool | None = None
    ) -> Reply:
        question = "Reply with the word OK and nothing else."
        streams = self._plain_streams if stream is None else stream
        return await self._ask(question, stream=streams, time_limit=time_limit)

    async def _ask_items(self, items: list[Item], **options: Any) -> Reply:
        options.setdefault("stream", not self._refuses_streams)
        reply = await self._send(items, **options)
        if (repaired := reply.repaired_route) is None:
            return reply
        self.route = repaired
        return await self._send(items, **options)

    async def _send(self, items: list[Item], **options: Any) -> Reply:
        reply = begin_reply(self.route)
        self.replies.append(reply)  # before: the probe's time may cancel it
        return await ask(self.route, items, reply=reply, **options)

    def _reasoning_options(self) -> dict[str, Any]:
        """The lowest effort that reasons, of a model that takes one."""
        efforts = self.route.capabilities.efforts or ()
        reasoning = [effort for effort in efforts if effort != "none"]
        return {"reasoning": {"effort": reasoning[0]}} if reasoning else {}

    # Errors

    async def _judge_error(
        self, feature: Feature, reply: Reply, question: str, **options: Any
    ) -> Finding:
        items = [user_message(question)]
        return await self._judge_items(feature, reply, items, **options)

    async def _judge_items(
        self, feature: Feature, reply: Reply, items: list[Item], **options: Any
    ) -> Finding:
        """Whether the error comes from the feature."""
        assert reply.error is not None
        why = self._why(reply.error)
        if reply.is_cut:
            return unclear(feature, CUT)
        if reply.has_timed_out:
            return unclear(feature, "%(why)s", why=why)
        is_common = feature != "stream" and reply.error.param in _COMMON_FIELDS
        if is_common or isinstance(reply.error, _GENERAL):
            return unclear(feature, _GENERAL_ERROR, why=why)
        if type(reply.error) is BadRequest:
            return fails(feature, _REFUSED, why=why)
        control = await self._ask_plainly()
        if control.error:
            return unclear(feature, _HOST_FAILS, why=self._why(control.error))
        again = await self._ask_items(items, **options)
        if again.error is None:
            return unclear(feature, _ONLY_ONCE, why=why)
        if again.has_timed_out or isinstance(again.error, _GENERAL):
            return unclear(feature, "%(why)s", why=self._why(again.error))
        return fails(feature, _BREAKS, why=self._why(again.error))

    def _key_name(self) -> str:
        return self.key_names.get(self.route.key_id, "–")

    def _why(self, error: LLMError) -> str:
        """The error in words, with the provider's message and without the key."""
        if isinstance(error, ModelNotAvailable):
            words = _("There is no model “%(model)s” for this key.")
            words %= {"model": self.route.model}
        else:
            words = describe_error(error)
        words = add_status(words, error.upstream_status)
        return add_host_message(words, error, self.route.endpoint.secrets)


def _no_text(feature: Feature, reply: Reply) -> Finding:
    return unclear(feature, CUT) if reply.is_cut else fails(feature, NO_TEXT)


def _image_question() -> Item:
    text = "What colour is this square? Answer with one English word."
    return {
        **user_message(text),
        "content": [
            {"type": "input_text", "text": text},
            {"type": "input_image", "image_url": RED_SQUARE, "detail": "low"},
        ],
    }


_ONLY_STREAMS = gettext_noop("Answers only in streams: %(why)s")
_ANSWERED = gettext_noop("Answered in %(seconds)s s.")
_ANSWERED_BY_OTHER = gettext_noop(
    "Answered in %(seconds)s s with the key %(key)s. The host refused: %(refused)s"
)
_ALL_REFUSED = gettext_noop("The host refused the key: %(refused)s")
_ALL_BUSY = gettext_noop("The key is at its rate limit: %(refused)s")
_ONE_PIECE = gettext_noop("The answer came in one piece; people wait for all of it.")
_PIECES = gettext_noop("The answer came in %(count)s pieces.")
_NO_STREAM = gettext_noop("There was no streamed answer to count.")
_NO_USAGE = gettext_noop(
    "The stream has no token counts, so tokens and costs of answers are unknown."
)
_USAGE = gettext_noop("Counted %(input)s tokens of input and %(output)s of output.")
_NO_STREAM_TO_CANCEL = gettext_noop("There is no streamed answer to cancel.")
_ONLY_TEXT = gettext_noop("The model answered in text, and then not at all.")
_NO_CALL = gettext_noop("The model answered in text and did not call the tool.")
_WRONG_CALL = gettext_noop("The call does not have the tool's name and arguments.")
_CALLED_ONLY = gettext_noop("Calls the tool; the answer did not use its result.")
_CALLED = gettext_noop("Calls the tool and uses its result.")
_NO_TOOLS = gettext_noop("Tools do not work.")
_ONE_CALL = gettext_noop("Asked for two calls at once, the model made only one.")
_CALLS = gettext_noop("%(count)s calls in one answer.")
_FOLLOWS = gettext_noop("The answer follows the schema.")
_IGNORES_SCHEMA = gettext_noop("The answer does not follow the schema.")
_RED = gettext_noop("Recognises a red square.")
_NOT_RED = gettext_noop(
    "Accepts an image, but did not recognise a red square: the host may drop images."
)
_NO_REASONING = gettext_noop("The model sent no reasoning that could be sent back.")
_REPLAYED = gettext_noop("Accepts its own reasoning in the next request.")
_TOO_SHORT = gettext_noop("The answer ended before it could be cancelled.")
_STOPPED = gettext_noop("Takes the next request after a cancelled answer.")
_GOES_ON = gettext_noop(
    "After a cancelled answer the host does not take the next request; it seems to"
    " write on. %(why)s"
)
_ONLY_ONCE = gettext_noop("Failed once and worked the second time: %(why)s")
