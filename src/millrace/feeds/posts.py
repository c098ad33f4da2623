"""Simulated posts of a social network."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from millrace.clients.kafka.record import Record
from millrace.feeds.simulation.phrases import FIRST_WORDS, LANGUAGES, SECOND_WORDS, TOPICS
from millrace.feeds.simulation.samples import SIZE, Trends, chart_place, draws, spread, zipf
from millrace.feeds.simulation.simulator import Scene, Simulated, iso

_AUTHORS = 5000
_REPLIES = SIZE // 5
_RECENT = 512


@dataclass(frozen=True, kw_only=True)
class Posts(Simulated):
    """Posts of a social network, in eight languages, with hashtags that trend and fade.

    A few authors write much and most write little. A fifth of the posts answer one of the last 512.
    The key is the author.
    """

    schema: ClassVar[str] = (
        "id string, author string, text string, lang string, tags array<string>, reply_to string, at timestamp"
    )
    moment: ClassVar[str] = "at"

    def scene(self, rng: random.Random) -> Scene:
        """A network of its own: authors, their ranks and the fortunes of topics."""
        return _Network(rng).posts


class _Author(NamedTuple):
    name: str
    key: bytes


class _Phrase(NamedTuple):
    before: str
    after: str
    lang: str

    @classmethod
    def of(cls, sentence: str, lang: str) -> _Phrase:
        before, _, after = sentence.partition("{}")
        return cls(before, after, lang)


class _Network:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._trends = Trends(rng, TOPICS)
        self._authors = spread(_authors(rng), zipf(_AUTHORS, 0.9))
        self._phrases = _phrases()
        self._hashtags = spread((0, 1, 2), (8, 67, 25))
        self._origin = f"{rng.getrandbits(32):08x}"
        self._written = 0

    def posts(self, times: Sequence[int]) -> list[Record]:
        """The next posts. This loop is the speed of the feed, so it only looks up and puts together."""
        origin, authors, phrases, hashtags = self._origin, self._authors, self._phrases, self._hashtags
        records = []
        columns = [draws(self._rng, len(times)) for _ in range(6)]
        rows = zip(times, *columns, strict=True)
        for number, (at, who, what, how_many, one, two, answer) in enumerate(rows, self._written):
            author, (before, after, lang) = authors[who], phrases[what]
            chart = self._trends.at(at)
            first, second, marks = chart[chart_place(one)], chart[chart_place(two)], hashtags[how_many]
            if marks == 0:
                topic, more, tags = first, "", ""
            elif marks == 1 or first == second:
                topic, more, tags = f"#{first}", "", f'"{first}"'
            else:
                topic, more, tags = f"#{first}", f" #{second}", f'"{first}","{second}"'
            reply = "null"
            if answer < _REPLIES and (answered := number - 1 - answer % _RECENT) >= 0:
                reply = f'"{origin}{answered:08x}"'
            value = (
                f'{{"id":"{origin}{number:08x}","author":"{author.name}","text":"{before}{topic}{after}{more}",'
                f'"lang":"{lang}","tags":[{tags}],"reply_to":{reply},"at":"{iso(at)}"}}'
            )
            records.append(Record(value.encode(), author.key))
        self._written += len(records)
        return records


def _authors(rng: random.Random) -> list[_Author]:
    pairs = [f"{first}_{second}" for first in FIRST_WORDS for second in SECOND_WORDS]
    names = [pairs[n % len(pairs)] + (str(n // len(pairs)) if n >= len(pairs) else "") for n in range(_AUTHORS)]
    return [_Author(name, name.encode()) for name in rng.sample(names, len(names))]


def _phrases() -> list[_Phrase]:
    phrases, weights = [], []
    for language in LANGUAGES:
        whole = [opening + ending for opening in language.openings for ending in language.endings]
        phrases += [_Phrase.of(sentence, language.code) for sentence in whole]
        weights += [language.weight / len(whole)] * len(whole)
    return spread(phrases, weights)
