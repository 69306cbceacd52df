"""`RequestBuilder`: addresses requests to a model, with the staff's default options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from llm.provider import Route
from llm.wire.request import Request

#: The fields of a request that staff may set for a model and callers for a request.
OPTIONS = frozenset(field.name for field in fields(Request)) - {
    "forwarded",
    "in_background",
    "instructions",
    "issuer",
    "items",
    "model",
    "prefill",
    "resumes",
    "stream",
    "tools",
}
SAMPLING_OPTIONS = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs"}
)
#: Two ways to say the same, of which some hosts take only one.
_ALTERNATIVES = ("temperature", "top_p")
_UNSET_VALUES: dict[str, Any] = {
    field.name: {} if field.default is MISSING else field.default
    for field in fields(Request)
    if field.name in OPTIONS
}


@dataclass(frozen=True, slots=True)
class RequestBuilder:
    """Builds the requests to the model of `route`.

    Chats, the gateway and `llm.api` all use it. `llm.adaptation.adapt` checks later,
    for each model that is tried, whether it accepts the options.
    """

    route: Route

    @property
    def defaults(self) -> dict[str, Any]:
        """The options that staff have set for the model."""
        set_by_staff = self.route.defaults
        return {n: v for n, v in set_by_staff.items() if n in OPTIONS and v is not None}

    def build(self, request: Request, options: Mapping[str, Any]) -> Request:
        """Return a copy of `request` for the model, with the caller's `options`.

        An option of the caller replaces the model's default, and null removes it; only
        the limit of output tokens stays. Other names in `options` are ignored.
        """
        chosen = {name: options[name] for name in options if name in OPTIONS}
        if defaults := self.defaults:
            defaults = self._drop_refused(defaults, chosen.get("reasoning"))
            defaults = self._drop_alternatives(defaults, chosen)
            chosen = {**defaults, **chosen}
        known = {name: value for name, value in chosen.items() if value is not None}
        known.setdefault("max_output_tokens", self.route.max_output_tokens)
        route = self.route
        return replace(request, model=route.model, issuer=route.issuer, **known)

    def retarget(self, request: Request, primary: Route) -> Request:
        """Address `request`, which was built for `primary`, to the model of `route`.

        The default options of the first model are replaced by those of the other one;
        options that the caller set stay. Hosted tools of the first model stay too:
        `options.fit` leaves out and reports the ones that the other model lacks.
        """
        route = self.route
        if route is primary and (request.model, request.issuer) == (
            route.model,
            route.issuer,
        ):
            return request  # a copy costs more than this comparison
        changed: dict[str, Any] = {"model": route.model, "issuer": route.issuer}
        if route is not primary:
            changed |= self._swap_defaults(request, primary)
            if more := [
                each for each in route.hosted_tools if each not in request.tools
            ]:
                changed["tools"] = [*request.tools, *more]
        return replace(request, **changed)

    def _swap_defaults(self, request: Request, primary: Route) -> dict[str, Any]:
        old, new = RequestBuilder(primary).all_defaults(), self.all_defaults()
        new = self._drop_refused(new, request.reasoning)
        own = {name: getattr(request, name) for name in _ALTERNATIVES}
        own = {name: value for name, value in own.items() if value != old.get(name)}
        new = self._drop_alternatives(new, own)
        changed: dict[str, Any] = {}
        for name in old.keys() | new.keys():
            value = getattr(request, name)
            if value is None or value in (_UNSET_VALUES[name], old.get(name)):
                changed[name] = new.get(name, _UNSET_VALUES[name])
        return changed

    def _drop_refused(self, defaults: dict[str, Any], reasoning: Any) -> dict[str, Any]:
        """Without temperature and the like where the model refuses them because it
        reasons: the caller has not asked for them."""
        if not defaults:
            return defaults
        effort = (reasoning or defaults.get("reasoning") or {}).get("effort")
        if self.route.capabilities.samples(effort):
            return defaults
        return {n: v for n, v in defaults.items() if n not in SAMPLING_OPTIONS}

    def _drop_alternatives(
        self, defaults: dict[str, Any], chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The defaults without those that the host refuses beside what the caller has
        chosen."""
        if all(chosen.get(name) is None for name in _ALTERNATIVES):
            return defaults
        codec = self.route.endpoint.codec
        if not getattr(codec, "takes_one_sampling_option", False):
            return defaults
        return {n: v for n, v in defaults.items() if n not in _ALTERNATIVES}

    def defaults_beside(
        self, reasoning: Any, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        """`all_defaults` for a request with this `reasoning` and the options
        `chosen`."""
        defaults = self._drop_refused(self.all_defaults(), reasoning)
        return self._drop_alternatives(defaults, chosen)

    def all_defaults(self) -> dict[str, Any]:
        """The default options with the limit of output tokens."""
        defaults, limit = self.defaults, self.route.max_output_tokens
        if limit is not None:
            defaults.setdefault("max_output_tokens", limit)
        return defaults
