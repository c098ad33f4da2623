"""examples/user-sessions."""

from __future__ import annotations

from .conftest import Stage, readme_rows


def test_a_session_ends_after_half_a_minute_of_silence(stage: Stage) -> None:
    stage.run("user-sessions", {"posts": stage.sample("user-sessions/data/posts.jsonl")})
    assert sorted(stage.shown("sessions")) == [
        ("brave_kettle", "2026-05-04 12:00:10", "2026-05-04 12:00:10", "1"),
        ("brave_kettle", "2026-05-04 12:00:41", "2026-05-04 12:00:41", "1"),
        ("quiet_otter", "2026-05-04 12:00:00", "2026-05-04 12:00:45", "3"),
        ("quiet_otter", "2026-05-04 12:02:00", "2026-05-04 12:02:00", "1"),
    ]
    assert readme_rows("user-sessions") == set(stage.shown("sessions"))
