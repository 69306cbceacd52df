from __future__ import annotations

import pytest

from llm.wire.codecs.anthropic.model_capabilities import traits_of

SAME = [
    ("claude-opus-5-5", "us.anthropic.claude-opus-5-5-20261001-v1:0"),
    ("claude-haiku-4-5", "anthropic/claude-haiku-4.5"),
    ("claude-sonnet-4-0", "claude-sonnet-4@20250514"),
    ("claude-opus-5", "claude-opus-5-20260301"),
    ("claude-fable-5-1", "claude-mythos-5-2"),
]


@pytest.mark.parametrize(("name", "spelling"), SAME)
def test_a_model_is_known_by_any_spelling(name, spelling):
    assert traits_of(name) == traits_of(spelling)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("claude-opus-5", "claude-opus-5-5"),
        ("claude-sonnet-5", "claude-sonnet-5-5"),
        ("claude-fable-5", "claude-fable-5-2"),
        ("claude-opus-4", "claude-opus-4-8"),
        ("claude-3-7-sonnet-latest", "claude-3-5-sonnet-latest"),
    ],
)
def test_and_not_taken_for_its_successor(one, other):
    assert traits_of(one) != traits_of(other)


@pytest.mark.parametrize(
    ("model", "types", "force"),
    [
        ("claude-fable-5-2", {"adaptive"}, "never"),
        ("claude-fable-5", {"adaptive"}, "always"),
        ("claude-opus-5-5", {"adaptive"}, "never"),
        ("claude-opus-5", {"adaptive", "disabled"}, "always"),
        ("claude-sonnet-5-5", {"adaptive", "between_tools"}, "never"),
        ("claude-haiku-5-5", {"adaptive", "disabled"}, "always"),
        ("claude-opus-4-7", {"adaptive", "disabled"}, "always"),
        ("claude-opus-4-5", {"enabled", "disabled"}, "unless_thinking"),
        ("claude-3-5-haiku-latest", set(), "always"),
    ],
)
def test_each_has_its_own_rules(model, types, force):
    traits = traits_of(model)
    assert (traits.thinking, traits.forced_tools) == (types, force)


def test_a_model_yet_to_come_is_treated_like_the_strictest():
    traits = traits_of("claude-opus-7")
    assert traits.thinking == {"adaptive"}
    assert (traits.forced_tools, traits.samples) == ("never", False)


def test_a_model_of_others_may_do_what_was_once_usual():
    traits = traits_of("deepseek-v4-pro")
    assert (traits.forced_tools, traits.samples) == ("always", True)
    assert not traits.system_messages


@pytest.mark.parametrize(
    ("model", "wanted", "effort"),
    [
        ("claude-opus-5-5", "xhigh", "xhigh"),
        ("claude-opus-5-5", "minimal", "low"),
        ("claude-opus-4-6", "xhigh", "max"),
        ("claude-opus-4-5", "max", "high"),
        ("claude-haiku-4-5", "high", ""),
    ],
)
def test_an_effort_becomes_the_nearest_that_is_legal(model, wanted, effort):
    assert traits_of(model).effort(wanted) == effort
