from __future__ import annotations

import asyncio
from types import ModuleType

import pytest
from django.apps import AppConfig, apps

from tools import checks, registry
from tools.errors import InvalidTool
from tools.registry import Context, RuntimeTool, discover, get_tool, python_tools, tool


def module(**functions) -> ModuleType:
    made = ModuleType("shop.tools")
    vars(made).update(functions)
    return made


@tool
def plain(city: str) -> str:
    """Tell the weather."""
    return city


def test_a_function_stays_as_it_is():
    assert plain("Riga") == "Riga"


def test_a_bare_tool_is_described_by_its_function():
    made = get_tool(plain)
    assert made.definition == {
        "type": "function",
        "name": "plain",
        "description": "Tell the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": False,
    }
    assert (made.timeout, made.replay, made.blocking) == (None, "once", True)
    assert made.source == "tests.tools.test_registry.plain"


def test_settings_override_the_function():
    @tool(
        name="the-weather",
        description="Ask me.",
        timeout=3,
        replay="safe",
        blocking=False,
        label="Weather",
    )
    async def weather():
        """Not told."""

    made = get_tool(weather)
    assert (made.name, made.description, made.label) == (
        "the-weather",
        "Ask me.",
        "Weather",
    )
    assert (made.timeout, made.replay, made.blocking) == (3, "safe", False)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"name": "the weather"}, "is named 'the weather'; a tool's name has up to 64"),
        ({"name": "7up"}, "is named '7up'"),
        ({"name": "x" * 65}, "is named 'xxx"),
        ({"timeout": 0}, "has the timeout 0; give seconds above 0."),
        ({"timeout": float("nan")}, "has the timeout nan; give seconds above 0."),
        (
            {"replay": "twice"},
            "has the replay 'twice'; use one of 'safe', 'idempotent',",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(settings, problem):
    def weather(): ...

    with pytest.raises(InvalidTool) as caught:
        tool(**settings)(weather)
    assert problem in str(caught.value)


def call(function, arguments=None, context=None):
    made = get_tool(function)
    return asyncio.run(made.call(context or Context(), arguments or {}))


def test_sync_and_async_are_called_alike():
    @tool
    async def waiting(city: str) -> str:
        await asyncio.sleep(0)
        return city

    assert call(plain, {"city": "Riga"}) == call(waiting, {"city": "Riga"}) == "Riga"


def test_a_function_that_declares_a_context_receives_it():
    @tool
    def me(context: Context, greeting: str = "I am") -> str:
        return f"{greeting} {context.user_id}"

    assert call(me, context=Context(user_id=7)) == "I am 7"


def test_all_marked_functions_of_a_module_are_found_once():
    found = discover(
        [module(a=plain, b=plain, c=3, d=RuntimeTool), module(again=plain)]
    )
    assert found == {"plain": get_tool(plain)}


def test_two_tools_of_one_name_are_refused():
    @tool(name="plain")
    def other(): ...

    with pytest.raises(InvalidTool) as caught:
        discover([module(plain=plain), module(other=other)])
    assert str(caught.value) == (
        "two tools are named 'plain': tests.tools.test_registry.plain and"
        " tests.tools.test_registry.test_two_tools_of_one_name_are_refused.<locals>"
        ".other."
    )


def test_built_in_tools_are_registered():
    assert {"calculator", "current_time", "weather_demo"} <= set(python_tools())


@pytest.fixture
def shop(monkeypatch, tmp_path):
    """An installed app, whose `tools.py` the test writes."""
    package = tmp_path / "parley_test_shop"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "parley_test_shop.tools", False)
    monkeypatch.delitem(__import__("sys").modules, "parley_test_shop", False)
    config = AppConfig.create("parley_test_shop")
    configs = [*apps.get_app_configs(), config]
    monkeypatch.setattr(registry.apps, "get_app_configs", lambda: configs)
    python_tools.cache_clear()
    yield package / "tools.py"
    python_tools.cache_clear()


def test_an_apps_tools_are_found(shop):
    shop.write_text(
        "from tools.registry import tool\n\n@tool\ndef buy(what: str): 'Buy it.'\n"
    )
    assert python_tools()["buy"].source == "parley_test_shop.tools.buy"
    assert checks.check_tools(None) == []


def test_an_app_without_tools_is_well(shop):
    assert "buy" not in python_tools()


def test_an_indescribable_tool_fails_the_system_check(shop):
    shop.write_text("from tools.registry import tool\n\n@tool\ndef buy(what): ...\n")
    (problem,) = checks.check_tools(None)
    assert problem.msg == (
        "parley_test_shop.tools.buy has no type for its parameter 'what'."
    )


def test_an_apps_tool_may_not_take_the_name_of_ours(shop):
    shop.write_text(
        "from tools.registry import tool\n\n@tool\ndef calculator(): 'Mine.'\n"
    )
    (problem,) = checks.check_tools(None)
    assert problem.msg == (
        "two tools are named 'calculator': tools.builtin.calculator.calculator and"
        " parley_test_shop.tools.calculator."
    )


def test_tools_that_break_on_import_break_loudly(shop):
    shop.write_text("import no_such_module_at_all\n")
    with pytest.raises(ModuleNotFoundError):
        python_tools()
