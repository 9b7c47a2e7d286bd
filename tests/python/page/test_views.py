"""Every view of the page in a real browser, over a server with jobs in every state: what it shows, and how."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.python.page.browser import DESK, TELEPHONE, obstacles, scrolls_sideways

FIGURES = ("light", "dark", "telephone")
PICTURES = {  # of docs/page.md
    ("jobs", "light"),
    ("job", "dark"),
    ("queue", "light"),
    ("cluster", "light"),
    ("jobs", "telephone"),
    ("job", "telephone"),
    ("cluster", "telephone"),
}


def job_place(cluster, name: str) -> str:
    return f"#/jobs/{cluster.jobs[name]}"


def show_jobs(page: Page) -> None:
    expect(page.locator("table.jobs tbody tr")).to_have_count(10)
    expect(page.locator(".tile .meter").first).to_be_visible()


def show_job(page: Page) -> None:
    expect(page.locator("svg.chart")).to_have_count(3)
    expect(page.locator(".line").first).to_be_attached()
    expect(page.locator(".changes li").first).to_be_attached()
    box = page.locator("svg.chart").first.bounding_box()
    page.mouse.move(box["x"] + 0.35 * box["width"], box["y"] + 0.4 * box["height"])
    expect(page.locator(".read-out")).to_be_visible()


def show_failed(page: Page) -> None:
    expect(page.locator(".reason-box.failed")).to_be_visible()
    expect(page.locator(".log-head")).to_contain_text("ended")


def show_queue(page: Page) -> None:
    expect(page.locator(".queue li")).to_have_count(3)


def show_cluster(page: Page) -> None:
    expect(page.locator(".node")).to_have_count(8)
    page.locator(".node").first.click()
    expect(page.locator(".node-details")).to_be_visible()


VIEWS = {
    "login": (lambda _: "", lambda page: expect(page.locator("#token")).to_be_focused()),
    "jobs": (lambda _: "#/jobs", show_jobs),
    "job": (lambda cluster: job_place(cluster, "resnet50"), show_job),
    "failed": (lambda cluster: job_place(cluster, "harmful"), show_failed),
    "queue": (lambda _: "#/queue", show_queue),
    "cluster": (lambda _: "#/cluster", show_cluster),
}


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("view", VIEWS)
def test_views_are_for_everybody(view: str, figure: str, tab, cluster, pictures: Path | None) -> None:
    """Contrast, names of controls, titles; nothing to push sideways; no complaint of the browser."""
    place, show = VIEWS[view]
    scheme = "dark" if figure == "dark" else "light"
    size = TELEPHONE if figure == "telephone" else DESK
    page = tab("" if view == "login" else "admin", scheme=scheme, size=size).open(place(cluster))
    show(page)
    assert obstacles(page) == []
    assert scrolls_sideways(page) == []
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (scheme == "dark")
    if pictures and (view, figure) in PICTURES:
        page.screenshot(path=pictures / f"page-{view}-{figure}.png", scale="css")


def test_the_list_says_what_runs_and_what_waits_and_why(tab, cluster) -> None:
    page = tab().open("#/jobs")
    row = page.locator("tr", has=page.get_by_role("link", name=cluster.jobs["llm-7b"]))
    expect(row.locator(".chip")).to_have_text("Queued")
    expect(row.locator(".reason")).to_contain_text("needs 4 learners with 8 cpus, 56 GiB, 4 v100 each")
    running = page.locator("tr", has=page.get_by_role("link", name=cluster.jobs["resnet50"]))
    expect(running.locator(".chip")).to_have_text("Running")
    expect(running.locator(".progress-cell")).to_contain_text(re.compile(r"\d,\d\d\d of 4,000 · .* left"))
    borrows = page.locator("tr", has=page.get_by_role("link", name=cluster.jobs["char-lm"]))
    expect(borrows.locator(".tag")).to_have_text("borrowed")
    expect(running.locator(".learners-cell")).to_have_text("2 × 4 cpus, 24 GiB, 4 v100")
    tiles = page.locator(".tile")
    expect(tiles.filter(has_text="Waiting").locator("dd")).to_have_text("3")
    expect(tiles.filter(has_text="v100").first.locator("dd")).to_contain_text("of 20")


def test_jobs_are_found_by_state_team_and_text(tab, cluster) -> None:
    page = tab().open("#/jobs")
    rows = page.locator("table.jobs tbody tr")
    expect(rows).to_have_count(10)
    page.get_by_label("Waiting", exact=True).check()
    expect(rows).to_have_count(3)
    assert page.url.endswith("#/jobs?state=waiting")
    page.get_by_label("Team").select_option("speech")
    expect(rows).to_have_count(1)
    page.get_by_label("All", exact=True).check()
    page.get_by_label("Team").select_option("")
    page.get_by_role("searchbox").fill("shakespeare")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(cluster.jobs["char-lm"])
    page.get_by_role("searchbox").fill("nothing like that")
    expect(page.locator(".empty-title")).to_have_text("No job is like that.")
    page.get_by_role("button", name="Show all jobs").click()
    expect(rows).to_have_count(10)
    expect(page.get_by_role("searchbox")).to_have_value("")
    page.go_back()
    expect(page.locator(".empty-title")).to_be_visible()


def test_members_see_their_team_and_viewers_change_nothing(tab, cluster) -> None:
    page = tab("eve").open("#/jobs")
    expect(page.locator("table.jobs tbody tr")).to_have_count(4)
    page.goto(f"{cluster.url}/{job_place(cluster, 'resnet50')}")
    expect(page.locator(".status-row .chip")).to_have_text("Running")
    assert page.get_by_role("button", name="Halt").count() == page.get_by_role("button", name="Delete").count() == 0
    page.get_by_label("Who is logged in").click()
    expect(page.locator(".person .menu")).to_contain_text("viewer of vision")
    page = tab("eve", expected=("404",)).open(job_place(cluster, "wav2vec"))
    expect(page.locator(".error-box")).to_contain_text("there is no job")


def test_history_has_every_change_with_its_reason(tab, cluster) -> None:
    page = tab().open(job_place(cluster, "resnet50"))
    changes = cluster.server.get(f"/v1/jobs/{cluster.jobs['resnet50']}/history")["changes"]
    items = page.locator(".changes li")
    expect(items).to_have_count(len(changes))
    words = {"PROCESSING": "Running"}
    shown = [text.split("\n")[0] for text in items.locator(".chip").all_inner_texts()]
    assert shown == [words.get(each["state"], each["state"].capitalize()) for each in reversed(changes)]
    expect(page.locator(".changes")).to_contain_text("restart 1 of 3")
    expect(page.locator(".changes")).to_contain_text("| RuntimeError: the link to learner 1 went down")  # no colours
    expect(page.locator(".changes")).to_contain_text("Attempt 2")
    assert page.locator(".strip .piece").count() >= len(changes) - 2


def test_the_queue_is_in_its_order(tab, cluster) -> None:
    page = tab().open("#/queue")
    asked = cluster.server.get("/v1/queue")
    expect(page.locator(".queue .job-link")).to_have_text([job["id"] for job in asked["jobs"]])
    assert [job["place_in_queue"] for job in asked["jobs"]] == [1, 2, 3]
    expect(page.locator(".queue li").first).to_contain_text(asked["jobs"][0]["reason"][:40])
    assert page.title().startswith("Queue (3)")
    page = tab("ben").open("#/queue")
    expect(page.locator(".queue .job-link")).to_have_text([cluster.jobs["wav2vec-large"]])


def test_the_cluster_shows_who_holds_what(tab, cluster) -> None:
    page = tab().open("#/cluster")
    expect(page.locator(".overview")).to_contain_text("16 of 20 v100 in use · 8 nodes · 1 drained")
    expect(page.get_by_role("button", name="gpu-5: 0 of 4 v100, drained")).to_be_visible()
    job = cluster.job("resnet50")
    node = job["learners"][0]["node"]
    box = page.get_by_role("button", name=re.compile(f"^{node}: 4 of 4 v100"))
    box.click()
    expect(page.locator(".node-details .job-link")).to_have_text([job["id"]])
    vision = page.locator(".cluster-head .legend li", has_text="vision")
    colour = vision.locator(".swatch").evaluate("(node) => getComputedStyle(node).backgroundColor")
    assert box.locator(".part").evaluate("(node) => getComputedStyle(node).backgroundColor") == colour
    page.get_by_label("cpus", exact=True).check()
    expect(page.locator(".overview")).to_contain_text("88 cpus in use")
    quota = page.locator(".quotas li", has_text="vision")
    expect(quota.locator("dd").first).to_have_text("8 of 8")
    expect(page.locator(".quotas li", has_text="language")).to_contain_text("Borrowed beyond it: 4 v100, 4 cpus")
    # Who is of another team sees that it is full, and not with whose jobs.
    page = tab("ben").open("#/cluster")
    page.get_by_role("button", name=re.compile(f"^{node}: 4 of 4 v100")).click()
    expect(page.locator(".node-details")).to_contain_text("Jobs of teams that you do not see.")


def test_all_works_with_the_keyboard(tab, cluster) -> None:
    page = tab().open("#/jobs")
    expect(page.locator("table.jobs tbody tr").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.localName") == "main"
    first = page.locator("tbody .job-link").first
    job = first.inner_text()
    for _ in range(20):
        page.keyboard.press("Tab")
        if first.evaluate("(node) => node === document.activeElement"):
            break
    outline = first.evaluate("(node) => getComputedStyle(node).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(job)
