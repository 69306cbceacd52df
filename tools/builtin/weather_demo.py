"""Weather tool with made-up sample data."""

from __future__ import annotations

import random
from typing import Annotated, Any

from pydantic import Field

from tools.errors import ToolError
from tools.registry import tool

_CONDITIONS = (
    "sunny",
    "partly cloudy",
    "cloudy",
    "light rain",
    "rain",
    "thunderstorm",
    "snow",
    "fog",
)
_MIN_FOR_RAIN = 2  # degrees Celsius
_MAX_FOR_SNOW = 1


@tool(label="Weather (sample data)", replay="safe")
async def weather_demo(
    city: Annotated[str, Field(min_length=1, max_length=100)],
) -> dict[str, Any]:
    """Tell the weather in a city. For demonstrations: the values are made up, always
    the same for one city, and no forecast; say so when you use them.

    Args:
        city: Name of the city, for example Paris.
    """
    if not (name := city.strip()):
        raise ToolError("the city is empty; name one, for example Paris.")
    chance = random.Random(name.casefold())  # the same values in every process
    temperature = chance.randint(-8, 34)
    return {
        "city": name,
        "sample": True,
        "note": "Made-up sample data, no forecast.",
        "condition": chance.choice(_possible(temperature)),
        "temperature": f"{temperature} °C",
        "humidity": f"{chance.randint(25, 95)} %",
        "wind": f"{chance.randint(0, 55)} km/h",
    }


def _possible(temperature: int) -> list[str]:
    wet = ("light rain", "rain", "thunderstorm")
    return [
        condition
        for condition in _CONDITIONS
        if (condition not in wet or temperature >= _MIN_FOR_RAIN)
        and (condition != "snow" or temperature <= _MAX_FOR_SNOW)
    ]
