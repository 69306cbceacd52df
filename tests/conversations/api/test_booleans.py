"""What REST reads as true or false: only JSON's own values."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from rest_framework import serializers

import conversations.api
import conversations.requests
from conversations.requests.fields import StrictBooleanField, StrictSerializer


class _Request(serializers.Serializer[object]):
    wait = StrictBooleanField(default=False)


@pytest.mark.parametrize(
    "value", ["yes", "no", "true", "false", "on", "t", "1", 1, 0, 1.0, None, [], {}]
)
def test_what_only_looks_like_a_boolean_is_refused_by_name(value):
    request = _Request(data={"wait": value})
    assert not request.is_valid()
    assert set(request.errors) == {"wait"}


@pytest.mark.parametrize("value", [True, False])
def test_json_booleans_are_read(value):
    request = _Request(data={"wait": value})
    assert request.is_valid()
    assert request.validated_data == {"wait": value}


def _kinds(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def test_every_boolean_that_a_request_may_hold_is_strict():
    for package in (conversations.api, conversations.requests):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    lenient = [
        f"{kind.__name__}.{name}"
        for kind in _kinds(StrictSerializer)
        for name, field in kind().fields.items()
        if isinstance(field, serializers.BooleanField)
        and not (field.read_only or isinstance(field, StrictBooleanField))
    ]
    assert lenient == []
