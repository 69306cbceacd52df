"""Which calls of a tool need a person's approval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.execution.without_approval import ApprovalNeeded, without_approval
from tools.runtime_tool import Approval, Context, RuntimeTool

ABOVE_TEN = {
    "type": "object",
    "properties": {"amount": {"exclusiveMinimum": 10}},
    "required": ["amount"],
}


@pytest.mark.parametrize("policy", ["always", "first"])
def test_without_a_rule_every_call_needs_approval(policy):
    approval = Approval(policy=policy, rule=ABOVE_TEN)
    assert approval.applies_to({"amount": 1})
    assert approval.applies_to({})


@pytest.mark.parametrize(
    ("rule", "amount", "needed"),
    [(ABOVE_TEN, 11, True), (ABOVE_TEN, 10, False), (None, 1, True), ({}, 1, True)],
)
def test_with_a_rule_calls_whose_arguments_fit_it_need_approval(rule, amount, needed):
    approval = Approval(policy="rule", rule=rule)
    assert approval.applies_to({"amount": amount}) is needed


NOT_TO_US = {
    "properties": {"to": {"pattern": r"^(?!.*@our-firm\.example$)"}},
    "required": ["to"],
}
TREE = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/tree"}, "pay": {"const": 1}},
            "anyOf": [{"properties": {"a": {"$ref": "#/$defs/tree"}}}] * 3,
        }
    },
    "$ref": "#/$defs/tree",
}


def nested(depth: int) -> dict:
    value: dict = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ({"to": "x@evil.example"}, True),
        ({"to": "x@our-firm.example"}, False),
        ({"to": "x@evil.example", "body": "y" * 1_001}, True),
        ({"to": "x@our-firm.example", "body": "y" * 1_001}, True),
    ],
)
def test_a_call_with_a_text_that_is_too_long_for_the_rule_needs_approval(
    arguments, needed
):
    assert Approval(policy="rule", rule=NOT_TO_US).applies_to(arguments) is needed


def test_a_call_that_is_too_deep_for_the_rule_needs_approval():
    approval = Approval(policy="rule", rule={**TREE, "required": ["pay"]})
    assert not approval.applies_to(nested(2))
    assert approval.applies_to(nested(60))


def test_a_call_whose_pattern_takes_too_long_needs_approval():
    rule = {"properties": {"to": {"pattern": r"^(?!.*(x+x+)+\1y)z"}}}
    approval = Approval(policy="rule", rule=rule)
    assert not approval.applies_to({"to": "x"})
    assert approval.applies_to({"to": "x" * 60 + "!"})


@pytest.mark.parametrize(
    "rule", [{"type": "any"}, {"pattern": "("}, {"$ref": "a.json"}]
)
def test_by_a_rule_that_is_no_schema_every_call_needs_approval(rule):
    assert Approval(policy="rule", rule=rule).applies_to({"amount": 1})


async def answer(context, arguments):
    return "paid"


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [({}, True), ({"amount": 5}, False), ({"amount": 11}, True)],
)
async def test_what_the_model_leaves_out_counts_with_its_default(arguments, needed):
    parameters = {
        "type": "object",
        "properties": {"amount": {"type": "integer", "default": 500}},
    }
    tool = RuntimeTool(
        name="pay",
        description="",
        parameters=parameters,
        call=answer,
        approval=Approval(policy="rule", rule=ABOVE_TEN),
    )
    assert tool.needs_approval(arguments) is needed
    unattended = without_approval(tool)
    if needed:
        with pytest.raises(ApprovalNeeded):
            await unattended.call(Context(), arguments)
    else:
        assert await unattended.call(Context(), arguments) == "paid"


def test_a_default_that_depends_on_a_branch_needs_approval_only_by_a_rule():
    large = {"properties": {"amount": {"type": "integer", "default": 500}}}
    tool = RuntimeTool(
        name="pay",
        description="",
        parameters={"type": "object", "anyOf": [large, {"required": ["order"]}]},
        call=answer,
        approval=Approval(policy="rule", rule=ABOVE_TEN),
    )
    assert tool.needs_approval({"order": 1})
    assert not tool.needs_approval({"amount": 5})
    assert not replace(tool, approval=None).needs_approval({"order": 1})
