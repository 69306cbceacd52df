"""Which calls of a tool need a person's approval."""

from __future__ import annotations

import pytest

from tools.runtime_tool import Approval

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
