"""JSON that staff type into a form."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from llm.forms.fields import JSONObjectField, StrictJSONField
from llm.keys.token_credentials import compact_key

DEEP = "[" * 5000
UNFIT = ['{"a":', "NaN", '{"a": 1e999}', "9" * 400, DEEP, "[" * 300 + "]" * 300]


@pytest.mark.parametrize("text", UNFIT)
@pytest.mark.parametrize("field", [StrictJSONField, JSONObjectField])
def test_an_invalid_value_is_refused_and_stays_in_the_form(field, text):
    with pytest.raises(ValidationError, match=r"Enter a valid JSON\."):
        field().clean(text)
    shown = field().bound_data(text, None)
    assert field().prepare_value(shown) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [('{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}), ('"x"', "x"), ("0", 0)],
)
def test_all_else_is_taken(text, value):
    field = StrictJSONField()
    assert field.clean(text) == value
    assert field.clean(field.clean(text)) == value


def test_nothing_typed_is_no_mistake():
    assert StrictJSONField(required=False).clean("") is None


def test_a_key_of_bottomless_nesting_is_left_as_it_is():
    assert compact_key(DEEP) == DEEP
