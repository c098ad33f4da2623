"""Simulated advertising events, in the form of the Yahoo streaming benchmark."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption
from millrace.feeds.simulation.samples import with_draws
from millrace.feeds.simulation.simulator import Scene, Simulated

_CAMPAIGNS = 100
_ADS_EACH = 10
_USERS = 100
_PAGES = 100
_AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
_EVENT_TYPES = ("view", "click", "purchase")


@dataclass(frozen=True, kw_only=True)
class Ads(Simulated):
    """Advertising events of the Yahoo streaming benchmark: views, clicks and purchases of 1,000 ads.

    As in the original, everything is equally likely and every field is a string; event_time is in
    milliseconds since 1970. Ten ads make a campaign: `campaigns` says which. The key is ad_id.
    """

    schema: ClassVar[str] = (
        "user_id string, page_id string, ad_id string, ad_type string, event_type string, "
        "event_time string, ip_address string"
    )
    moment: ClassVar[str] = "event_time"

    def campaigns(self) -> dict[str, str]:
        """The campaign of each ad, which the benchmark's query joins with the events."""
        if self.seed is None:
            raise InvalidOption("the campaigns of ads follow from a seed, and none is given", hint="give a seed")
        return _campaigns(random.Random(self.seed))

    def scene(self, rng: random.Random) -> Scene:
        """The campaigns, and users who see their ads."""
        ads = [(ad, ad.encode()) for ad in _campaigns(rng)]  # the first draws, so that `campaigns` finds the same ones
        users = [(_uuid(rng), _address(rng)) for _ in range(_USERS)]
        pages = [_uuid(rng) for _ in range(_PAGES)]
        kinds = [f'"ad_type":"{ad}","event_type":"{event}"' for ad in _AD_TYPES for event in _EVENT_TYPES]

        def events(times: Sequence[int]) -> Iterator[Record]:
            for at, who, where, which, what in with_draws(times, rng, 4):
                user, address = users[who % _USERS]
                ad, key = ads[which % len(ads)]
                value = (
                    f'{{"user_id":"{user}","page_id":"{pages[where % _PAGES]}","ad_id":"{ad}",'
                    f'{kinds[what % len(kinds)]},"event_time":"{at}","ip_address":"{address}"}}'
                )
                yield Record(value.encode(), key)

        return events


def _campaigns(rng: random.Random) -> dict[str, str]:
    campaigns = [_uuid(rng) for _ in range(_CAMPAIGNS)]
    return {_uuid(rng): campaign for campaign in campaigns for _ in range(_ADS_EACH)}


def _uuid(rng: random.Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))


def _address(rng: random.Random) -> str:
    return f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"
