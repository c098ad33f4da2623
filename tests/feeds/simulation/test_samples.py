import random
from collections import Counter

from millrace.feeds.simulation.samples import SIZE, Trends, chart_index

NAMES = tuple(f"topic{number}" for number in range(100))
NOW = 1_780_000_000_000


def test_a_chart_follows_from_the_seed_and_the_moment_alone():
    one, other = Trends(random.Random(1), NAMES), Trends(random.Random(1), NAMES)
    for minute in range(500):  # more than are remembered
        one.at(NOW + minute * 60_000)
    assert one.at(NOW) == other.at(NOW)


def test_a_draw_falls_in_the_chart():
    chart = Trends(random.Random(1), NAMES).at(NOW)
    assert chart_index(0) == 0
    assert chart_index(SIZE - 1) == len(chart) - 1


def test_each_topic_rises_and_falls():
    trends = Trends(random.Random(1), NAMES)
    charts = [Counter(trends.at(NOW + minute * 60_000)) for minute in range(40)]
    for leader, _ in charts[0].most_common(5):
        heights = [chart[leader] for chart in charts]
        assert max(heights) > 5 * min(heights)


def test_charts_move_little_in_seconds():
    trends = Trends(random.Random(1), NAMES)
    before, after = Counter(trends.at(NOW)), Counter(trends.at(NOW + 5_000))
    assert (before & after).total() > 0.9 * before.total()
