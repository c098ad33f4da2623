"""examples/posts-and-replies."""

from __future__ import annotations

from .conftest import Stage, readme_rows


def test_replies_in_time_find_their_posts_and_the_rest_is_told(stage: Stage) -> None:
    stage.run("posts-and-replies", {"posts": stage.sample("posts-and-replies/data/posts.jsonl")})
    assert sorted(stage.shown("answered")) == [
        ("p1", "quiet_otter", "2026-05-04 12:00:00", "amber_finch", "2026-05-04 12:04:59"),
        ("p1", "quiet_otter", "2026-05-04 12:00:00", "sunny_harbour", "2026-05-04 12:01:00"),
        ("p2", "brave_kettle", "2026-05-04 12:00:30", "sunny_harbour", "2026-05-04 12:05:30"),
        ("p4", "quiet_otter", "2026-05-04 12:30:00", "sunny_harbour", "2026-05-04 12:31:00"),
    ]
    # The reply to p3 came too late.
    assert stage.shown("unanswered") == [("p3", "misty_lantern", "2026-05-04 12:01:00")]
    assert readme_rows("posts-and-replies") == {*stage.shown("answered"), *stage.shown("unanswered")}
