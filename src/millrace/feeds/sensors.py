"""Simulated sensors of a smart home."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import cos, exp, tau
from typing import ClassVar, NamedTuple

from millrace.clients.kafka.record import Record
from millrace.feeds.simulation.samples import SIZE, bell, with_draws
from millrace.feeds.simulation.simulator import DAY, Scene, Simulated, iso

_MINUTE = 60_000
_ALERTS = SIZE // 2000
_FAULTS = SIZE // 4000
_STUCK = 5  # readings
_CALMING = 0.85  # what is left of an alert at the sensor's next reading
_WANDERING = 0.995  # what is left of a walk's step, so that it never strays far


@dataclass(frozen=True, kw_only=True)
class Sensors(Simulated):
    """Readings of a smart home: temperature, humidity, CO2, motion and power in nine rooms.

    Values follow the hour of the day (UTC) and wander a little; now and then one shoots up, as in a fire,
    or a sensor is broken for a few readings and says something impossible. The key is the sensor.
    """

    schema: ClassVar[str] = (
        "sensor string, room string, kind string, value double, unit string, battery int, at timestamp"
    )
    moment: ClassVar[str] = "at"

    def scene(self, rng: random.Random) -> Scene:
        sensors = [_Sensor(room, kind, rng) for room, kinds in _ROOMS.items() for kind in kinds]
        normal = bell()

        def readings(times: Sequence[int]) -> Iterator[Record]:
            for at, which, step, noise, luck in with_draws(times, rng, 4):
                sensor = sensors[which % len(sensors)]
                reading = sensor.read(at, normal[step], normal[noise], luck)
                value = (
                    f'{sensor.start}{reading:.1f},"unit":"{sensor.kind.unit}",'
                    f'"battery":{sensor.battery(at)},"at":"{iso(at)}"}}'
                )
                yield Record(value.encode(), sensor.key)

        return readings


class _Kind(NamedTuple):
    """What is measured: how it goes through the day, how it varies, and what an alert and a fault look like."""

    name: str
    unit: str
    usual: float
    daily: float
    walk: float
    noise: float
    alert: float
    broken: float
    least: float
    wired: bool = False


_TEMPERATURE = _Kind("temperature", "°C", 20.5, 1.8, 0.03, 0.1, 35.0, -127.0, -20.0)
_HUMIDITY = _Kind("humidity", "%", 46.0, -5.0, 0.1, 0.6, 40.0, 0.0, 5.0)
_CO2 = _Kind("co2", "ppm", 520.0, 420.0, 4.0, 8.0, 2500.0, 65535.0, 400.0, wired=True)
_MOTION = _Kind("motion", "", -0.9, 2.4, 0.0, 1.0, 0.0, 1.0, 0.0)
_POWER = _Kind("power", "W", 90.0, 700.0, 5.0, 20.0, 3200.0, -1.0, 0.5, wired=True)

_ROOMS = {
    "kitchen": (_TEMPERATURE, _HUMIDITY, _CO2, _MOTION, _POWER),
    "living-room": (_TEMPERATURE, _HUMIDITY, _CO2, _MOTION, _POWER),
    "bedroom": (_TEMPERATURE, _HUMIDITY, _CO2, _MOTION),
    "nursery": (_TEMPERATURE, _HUMIDITY, _CO2, _MOTION),
    "bathroom": (_TEMPERATURE, _HUMIDITY, _MOTION, _POWER),
    "office": (_TEMPERATURE, _CO2, _MOTION, _POWER),
    "hall": (_TEMPERATURE, _MOTION),
    "attic": (_TEMPERATURE, _HUMIDITY),
    "garage": (_TEMPERATURE, _MOTION, _POWER),
}


class _Sensor:
    """One sensor and where its value has wandered."""

    def __init__(self, room: str, kind: _Kind, rng: random.Random) -> None:
        name = f"{room}-{kind.name}"
        self.key = name.encode()
        self.start = f'{{"sensor":"{name}","room":"{room}","kind":"{kind.name}","value":'
        self.kind = kind
        self._usual = kind.usual + abs(kind.daily) * rng.uniform(-0.2, 0.2)
        self._day = _daytime(kind)
        self._walk = 0.0
        self._alert = 0.0
        self._stuck = 0
        self._charge = rng.randrange(30, 100)

    def read(self, at: int, step: float, noise: float, luck: int) -> float:
        """The next value; most of the time, luck is neither an alert nor a fault."""
        kind = self.kind
        if luck < _FAULTS:
            self._stuck = _STUCK
        elif luck < _FAULTS + _ALERTS:
            self._alert = kind.alert
        self._walk = self._walk * _WANDERING + step * kind.walk
        self._alert *= _CALMING
        if self._stuck:
            self._stuck -= 1
            return kind.broken
        value = self._usual + self._day[at % DAY // _MINUTE] + self._walk + self._alert + noise * kind.noise
        return max(kind.least, value) if kind is not _MOTION else float(value > 0)

    def battery(self, at: int) -> str:
        """Percent left, one less each day until it is changed; null for what is wired."""
        return "null" if self.kind.wired else str(100 - (at // DAY + self._charge) % 100)


@cache
def _daytime(kind: _Kind) -> list[float]:
    """What each minute of the day adds: the sun's for weather indoors, the people's for what people cause."""
    rhythm = _sun if kind in (_TEMPERATURE, _HUMIDITY) else _people
    return [kind.daily * rhythm(minute / 60) for minute in range(24 * 60)]


def _sun(hour: float) -> float:
    return cos(tau * (hour - 15) / 24)


def _people(hour: float) -> float:
    """Busy before work and in the evening."""
    return exp(-(((hour - 7.5) / 1.5) ** 2)) + exp(-(((hour - 20) / 2.5) ** 2))
