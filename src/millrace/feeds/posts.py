"""Simulated posts of a social network."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from millrace.clients.kafka.record import Record
from millrace.feeds.simulation.phrases import FIRST_WORDS, LANGUAGES, SECOND_WORDS, TOPICS
from millrace.feeds.simulation.samples import SIZE, Trends, chart_index, spread, with_draws, zipf
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
        trends = Trends(rng, TOPICS)
        authors = spread(_authors(rng), zipf(_AUTHORS, 0.9))
        phrases = _phrases()
        hashtags = spread((0, 1, 2), (8, 67, 25))
        origin = f"{rng.getrandbits(32):08x}"
        numbers = count()

        def posts(times: Sequence[int]) -> Iterator[Record]:
            # This loop is the speed of the feed, so it only looks up and puts together.
            for at, who, what, how_many, one, two, answer in with_draws(times, rng, 6):
                number = next(numbers)
                (author, key), (before, after, lang) = authors[who], phrases[what]
                chart = trends.at(at)
                first, second, marks = chart[chart_index(one)], chart[chart_index(two)], hashtags[how_many]
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
                    f'{{"id":"{origin}{number:08x}","author":"{author}","text":"{before}{topic}{after}{more}",'
                    f'"lang":"{lang}","tags":[{tags}],"reply_to":{reply},"at":"{iso(at)}"}}'
                )
                yield Record(value.encode(), key)

        return posts


def _authors(rng: random.Random) -> list[tuple[str, bytes]]:
    """Names, and the same as keys."""
    pairs = [f"{first}_{second}" for first in FIRST_WORDS for second in SECOND_WORDS]
    names = [pairs[n % len(pairs)] + (str(n // len(pairs)) if n >= len(pairs) else "") for n in range(_AUTHORS)]
    return [(name, name.encode()) for name in rng.sample(names, len(names))]


def _phrases() -> list[tuple[str, str, str]]:
    """What stands before and after the topic, and the language."""
    phrases, weights = [], []
    for language in LANGUAGES:
        sentences = [opening + ending for opening in language.openings for ending in language.endings]
        parts = [sentence.partition("{}") for sentence in sentences]
        phrases += [(before, after, language.code) for before, _, after in parts]
        weights += [language.weight / len(sentences)] * len(sentences)
    return spread(phrases, weights)
