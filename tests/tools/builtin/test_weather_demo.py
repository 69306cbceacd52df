from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.calls import outcome
from tools.builtin.weather_demo import weather_demo


def weather(city: str) -> dict:
    with pytest.raises(StopIteration) as caught:
        weather_demo(city).send(None)
    return caught.value.value


async def test_a_city_has_always_the_same_weather():
    body = json.loads((await outcome(weather_demo, city="Paris")).output)
    assert body == {
        "city": "Paris",
        "sample": True,
        "note": "Made-up sample data, no forecast.",
        "condition": body["condition"],
        "temperature": body["temperature"],
        "humidity": body["humidity"],
        "wind": body["wind"],
    }
    assert weather(" Paris ") == body
    assert weather("PARIS") == {**body, "city": "PARIS"}


@given(st.text(min_size=1).filter(str.strip))
def test_weather_is_possible_and_always_called_a_sample(city):
    report = weather(city)
    degrees = int(report["temperature"].removesuffix(" °C"))
    assert report["sample"] is True
    assert "snow" not in report["condition"] or degrees <= 1
    assert "rain" not in report["condition"] or degrees >= 2


def test_cities_differ():
    cities = ["Paris", "Oslo", "Cairo", "Lima", "Tokyo", "Riga"]
    assert len({weather(city)["temperature"] for city in cities}) > 1


@pytest.mark.parametrize("city", ["", "  ", "x" * 101])
async def test_a_city_has_a_name(city):
    assert (await outcome(weather_demo, city=city)).state == "failed"
