"""What the page says of the generations of a pipeline's outputs: of a real state folder, and of what changes in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import httpx
from playwright.sync_api import expect

from engine.replay.test_generations import made, trending
from millrace.dashboard.run_page import page_of_pipeline
from millrace.dashboard.server import ServerOptions
from millrace.engine.replay import generations
from millrace.pipeline.plan import make_plan
from millrace.telemetry.query_status import RunStatus
from web.conftest import Tabs


def test_a_run_says_which_generation_it_writes_and_which_there_are(tabs: Tabs, tmp_path: Path) -> None:
    base = tmp_path / "trending"
    generations.change(
        base, lambda now: replace(now.with_generation(made(2)).with_generation(made(3, None)), current=2, before=1)
    )
    chosen = generations.choose(trending().model(), base)
    plan, number = make_plan(chosen.pipeline), chosen.number
    with page_of_pipeline(
        plan, RunStatus(), ServerOptions(port=0), state=chosen.state, generation=number, base=base
    ) as watching:
        told = httpx.get(f"{watching.address}api/pipeline").json()
        assert told["generation"] == 2
        assert [one["number"] for one in told["generations"] if one["current"]] == [2]

        page = tabs.open(watching.address)
        page.get_by_role("link", name="generation 2").click()
        rows = page.get_by_role("grid", name="generations").get_by_role("row")
        expect(rows).to_have_count(4)  # with the headings
        expect(rows.nth(1)).to_contain_text("as the file names it")
        for words in ("current, this run", "replayed, from earliest to latest", "posts[0] 0 to 10", "popular.g2"):
            expect(rows.nth(2)).to_contain_text(words)
        expect(rows.nth(3)).to_contain_text("not finished")
        guarantees = page.get_by_role("grid", name="guarantees")
        for words in ("kafka popular.g2", "files out/popular.g2", "cassandra town.popular_g2"):
            expect(guarantees).to_contain_text(words)
        page.goto(f"{watching.address}#/")
        page.get_by_role("button", name=re.compile("^sink popular.g2")).click()
        expect(page.get_by_role("complementary")).to_contain_text("topic popular.g2")

        generations.change(base, lambda now: replace(now, current=1, before=2))  # as a rollback does
        page.goto(f"{watching.address}#/about")
        expect(rows.nth(1)).to_contain_text("current")
        expect(rows.nth(2)).not_to_contain_text("current")
        tabs.close()  # before its server


def test_of_the_first_generation_there_is_nothing_to_say(tabs: Tabs, tmp_path: Path) -> None:
    plan = make_plan(trending().model())
    with page_of_pipeline(plan, RunStatus(), ServerOptions(port=0), state=tmp_path / "trending") as watching:
        page = tabs.open(f"{watching.address}#/about")
        expect(page.get_by_role("grid", name="guarantees")).to_contain_text("kafka popular")
        expect(page.get_by_role("grid", name="generations")).to_have_count(0)
        expect(page.locator("header.topline .tag")).to_have_count(0)
        tabs.close()
