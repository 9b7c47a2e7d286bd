"""What a job does is seen as it does it: curves, log, states; and what one does to it."""

from __future__ import annotations

import math
import re
import tarfile
import time

from playwright.sync_api import Page, expect

from tests.python.page.browser import TELEPHONE


def open_job(tab, cluster, name: str, user: str = "admin", **options: object) -> Page:
    page = tab(user, **options).open(f"#/jobs/{cluster.jobs[name]}")
    expect(page.locator(".status-row .chip")).to_be_visible()
    return page


def chart(page: Page, kind: str):
    return page.locator("figure", has=page.get_by_role("heading", name=kind, exact=True))


def test_curves_are_those_of_the_metrics(tab, cluster) -> None:
    page = open_job(tab, cluster, "resnet50")
    loss = chart(page, "loss")
    expect(loss.locator(".legend li")).to_have_count(3)
    asked = cluster.server.get(f"/v1/jobs/{cluster.jobs['resnet50']}/metrics?limit=10000&name=loss&learner=0")
    values = {each["step"]: each["value"] for each in asked["metrics"]}
    svg = loss.locator("svg")
    svg.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    read = loss.locator(".read-out")
    expect(read).to_be_visible()
    page.keyboard.press("Home")
    expect(read.locator("strong")).to_have_text("Step 1")
    shown = read.locator("li", has_text=re.compile("^loss, learner 0")).locator("b").inner_text()
    assert math.isclose(float(shown), values[1], rel_tol=2e-3)
    page.keyboard.press("Escape")
    expect(read).to_have_count(0)
    # What was done again after a restart stands behind.
    expect(loss.locator("path.old").first).to_be_attached()


def test_charts_can_be_read_closely(tab, cluster) -> None:
    page = open_job(tab, cluster, "resnet50")
    loss = chart(page, "loss")
    figures = loss.locator(".figures text")
    expect(figures.first).to_be_attached()
    linear = figures.all_inner_texts()
    loss.get_by_role("button", name="Logarithmic scale of loss").click()
    expect(loss.get_by_role("button")).to_have_attribute("aria-pressed", "true")
    assert figures.all_inner_texts() != linear
    page.get_by_label("Time", exact=True).check()
    expect(figures.last).to_have_text(re.compile(r"\d+ s|\d+:\d\d"))
    page.get_by_label("Steps", exact=True).check()
    box = loss.locator("svg").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 120, steps=3)
    expect(loss.locator(".selection")).to_be_visible()
    page.mouse.up()
    page.get_by_role("button", name="Whole run").click()
    expect(page.get_by_role("button", name="Whole run")).to_have_count(0)
    page.get_by_label("Smooth").fill("0.9")
    expect(loss.locator("path.faint").first).to_be_attached()
    page.get_by_role("combobox", name="Learners").select_option("1")
    expect(loss.locator(".legend li")).to_have_count(1)


def test_a_finger_reads_a_curve(tab, cluster) -> None:
    page = open_job(tab, cluster, "wav2vec", size=TELEPHONE)
    svg = page.locator("svg.chart").first
    svg.scroll_into_view_if_needed()
    svg.tap()
    expect(page.locator(".read-out")).to_be_visible()


def test_a_long_run_is_thinned_and_keeps_its_extremes(tab, cluster) -> None:
    job = cluster.jobs["tokens"]
    file = cluster.server.data / "jobs" / job / "metrics" / "0.jsonl"
    file.parent.mkdir(exist_ok=True)
    count = 60_000
    line = '{{"step":{},"time":{},"name":"loss","value":{},"source":"0","position":{}}}\n'
    file.write_text(
        "".join(
            line.format(i, 1795732832000000 + i * 1000, 99 if i == 31_234 else 2 + math.sin(i / 9000), i)
            for i in range(1, count + 1)
        )
    )
    answer = cluster.server.ask("GET", f"/v1/jobs/{job}/metrics?points=250")
    kept = answer.json["metrics"]
    assert 250 <= len(kept) <= 1250 and kept[0]["step"] == 1 and kept[-1]["step"] == count
    assert max(each["value"] for each in kept) == 99
    rest = cluster.server.get(f"/v1/jobs/{job}/metrics?cursor={answer.json['cursor']}")
    assert rest["metrics"] == [] and rest["ended"]
    page = open_job(tab, cluster, "tokens")
    expect(page.locator(".legend")).to_contain_text("at step 60,000")
    assert "from 1" in page.locator("svg.chart").get_attribute("aria-label")
    assert "to 99" in page.locator("svg.chart").get_attribute("aria-label")


def test_the_log_is_followed_and_can_be_held(tab, cluster) -> None:
    page = open_job(tab, cluster, "resnet50")
    log = page.get_by_role("log")
    expect(log.locator(".line").first).to_be_attached()
    expect(page.locator(".log-head")).to_contain_text("live")
    newest = page.evaluate("document.querySelector('.log').lastElementChild.textContent")
    page.wait_for_function("(text) => document.querySelector('.log').lastElementChild.textContent !== text", arg=newest)
    at_end = "(node) => node.scrollHeight - node.scrollTop - node.clientHeight < 5"
    assert log.evaluate(at_end)
    # One who reads further up is left alone.
    log.evaluate("(node) => node.scrollTo(0, 40)")
    expect(page.locator(".to-end")).to_be_visible()
    page.wait_for_function("() => /new below/.test(document.querySelector('.to-end').textContent)")
    assert log.evaluate("(node) => node.scrollTop") == 40
    page.locator(".to-end").click()
    assert log.evaluate(at_end)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".log-head")).to_contain_text("paused")
    held = log.inner_text()
    time.sleep(0.6)
    assert log.inner_text() == held
    page.get_by_role("button", name="Go on").click()
    page.wait_for_function("(text) => document.querySelector('.log').innerText !== text", arg=held)


def test_the_log_shows_ranks_colours_bars_and_filters(tab, cluster) -> None:
    page = open_job(tab, cluster, "char-lm")
    log = page.get_by_role("log")
    expect(log.locator(".line").first).to_be_attached()
    assert {"0", "1"} == set(log.locator(".who").all_inner_texts())
    before = log.locator(".line").count()
    page.get_by_role("button", name="Show earlier lines").click()
    page.wait_for_function("(count) => document.querySelectorAll('.log .line').length > 2 * count", arg=before)
    # Of a progress bar there is its end.
    bars = log.locator(".line", has_text="evaluating")
    expect(bars.first).to_be_attached()  # more of what was asked for may still come
    assert all("100%" in text for text in bars.all_inner_texts())
    page.get_by_label("Show lines with").fill("BETTER than")
    expect(log.locator(".line:visible").first).to_contain_text("evaluation at step")
    assert log.locator(".line:visible", has_text="loss").count() == 0
    expect(log.locator(".line:visible .ink-green").first).to_have_text("better than before")
    page.get_by_label("Show lines with").fill("")
    page.get_by_label("Learner of the log").select_option("1")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.log .who')].every((node) => node.textContent === '1')"
    )
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save").click()
    text = saved.value.path().read_text()
    assert re.match(r"\S+Z 1 .*training", text) and text.count("\n") > 9000


def test_new_jobs_and_new_states_appear_by_themselves(tab, cluster) -> None:
    page = tab("ben", expected=("404",)).open("#/jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    job = cluster.submit("ben", "soon", "echo made > $RESULT_DIR/out; echo done", priority=90)
    row = page.locator("tr", has=page.get_by_role("link", name=job))
    expect(row).to_be_visible()
    expect(row.locator(".chip")).to_have_text("Completed")
    row.get_by_role("link").click()
    expect(page.locator("h1")).to_have_text(job)
    # Its results, and then it goes.
    page.locator(".menu-button summary").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Results").click()
    with tarfile.open(saved.value.path()) as archive:
        assert archive.extractfile("out").read() == b"made\n"
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("dialog")).to_have_count(0)
    assert cluster.server.ask("GET", f"/v1/jobs/{job}").status == 200
    page.get_by_role("button", name="Delete").click()
    page.locator("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".empty-title")).to_have_text(f"{job} is deleted.")


def test_halt_and_resume_with_other_learners(tab, cluster) -> None:
    cluster.submit("ann", "pair", "sleep 600", learners=2, priority=90)
    page = open_job(tab, cluster, "pair", "ann", expected=("404",))
    chip = page.locator(".status-row .chip")
    expect(chip).to_have_text("Running")
    page.get_by_role("button", name="Halt").click()
    page.locator("dialog").get_by_role("button", name="Halt").click()
    expect(chip).to_have_text("Halted")
    page.get_by_role("button", name="Resume").click()
    page.get_by_label("Learners").fill("1")
    page.locator("dialog").get_by_role("button", name="Resume").click()
    expect(chip).to_have_text("Running")
    expect(page.locator(".learners li")).to_have_count(1)
    cluster.admin("DELETE", f"/v1/jobs/{cluster.jobs.pop('pair')}")
    expect(page.locator(".empty-title")).to_contain_text("is deleted")
