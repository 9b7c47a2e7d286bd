"""Who gets in, what a browser is told, and what somebody who means harm cannot do with a name or a line of a log."""

from __future__ import annotations

import signal

from playwright.sync_api import expect

from tests.python.page.cluster import HARM


def test_log_in_and_out(tab, cluster) -> None:
    nobody = tab("", expected=("401",))
    page = nobody.open("#/queue")
    expect(page.get_by_label("Your token")).to_be_focused()
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The server does not know this token.")
    token = cluster.tokens["ann"]
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()
    assert all(token not in each for each in [page.url, *nobody.asked])
    page.reload()
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()
    # Kept for this tab alone.
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    other = nobody.context.new_page()
    other.goto(cluster.url)
    expect(other.get_by_label("Your token")).to_be_visible()
    page.get_by_label("Who is logged in").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Your token")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_revoked_token_ends_the_session_in_words(tab, cluster) -> None:
    made = cluster.admin("POST", "/v1/tokens", {"user": "ann"})
    cluster.tokens["short"] = made["token"]
    page = tab("short", expected=("401",)).open("#/jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    cluster.admin("DELETE", f"/v1/tokens/{made['id']}")
    expect(page.get_by_role("alert")).to_contain_text("does not know this token any more")


def test_what_users_write_is_text(tab, cluster) -> None:
    for place in ("#/jobs", f"#/jobs/{cluster.jobs['harmful']}"):
        page = tab().open(place)
        expect(page.get_by_text(HARM, exact=True).first).to_be_visible()
        page.wait_for_timeout(200)
        assert "owned" not in page.title()
        assert page.locator("main img, main script, main b b, main iframe").count() == 0
    log = page.get_by_role("log")
    expect(log.locator(".what").first).to_have_text(HARM)
    expect(log.locator(".ink-red").first).to_have_text("<b>red</b>")
    assert "\x1b" not in log.inner_text() and "\x07" not in log.inner_text()
    expect(page.get_by_role("heading", name="<b>loss</b>")).to_be_visible()
    page.get_by_role("button", name="more characters").click()
    assert len(log.inner_text()) > 30_000
    # A value that was not finite is marked where it was.
    expect(page.locator("path.broken")).to_have_count(1)


def test_browsers_are_told_to_run_nothing_else(cluster) -> None:
    page = cluster.server.ask("GET", "/", token="")
    policy = page.headers["Content-Security-Policy"]
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert b"style=" not in page.body and b"onclick" not in page.body
    for path in ("/", "/v1/health", "/v1/jobs", "/v1/nothing", f"/v1/jobs/{cluster.jobs['tokens']}/results"):
        assert cluster.server.ask("GET", path).headers["X-Content-Type-Options"] == "nosniff", path


def test_files_are_kept_by_browsers_and_looked_for_again(cluster) -> None:
    page = cluster.server.ask("GET", "/", token="")
    again = cluster.server.ask("GET", "/", token="", If_None_Match=page.headers["ETag"])
    assert again.status == 304 and again.body == b"" and page.headers["Cache-Control"] == "no-cache"
    start = page.body.index(b"/assets/")
    path = page.body[start : page.body.index(b'"', start)].decode()
    version = path.split("/")[2]
    asset = cluster.server.ask("GET", path, token="")
    assert asset.status == 200 and "immutable" in asset.headers["Cache-Control"]
    assert cluster.server.ask("GET", path, token="", If_None_Match=asset.headers["ETag"]).status == 304
    for wrong in (path.replace(version, "0" * 16), path + "x", f"/assets/{version}/../main.js", "/assets/main.js"):
        assert cluster.server.ask("GET", wrong, token="").status == 404, wrong
    assert cluster.server.ask("POST", "/", b"", token="").status == 405


def test_answers_that_have_not_changed_are_not_sent_again(cluster) -> None:
    first = cluster.server.ask("GET", "/v1/teams")
    assert first.headers["Cache-Control"] == "no-store"
    again = cluster.server.ask("GET", "/v1/teams", If_None_Match=first.headers["ETag"])
    assert again.status == 304 and again.body == b""
    cluster.admin("POST", "/v1/teams", {"name": "another"})
    changed = cluster.server.ask("GET", "/v1/teams", If_None_Match=first.headers["ETag"])
    assert changed.status == 200 and changed.headers["ETag"] != first.headers["ETag"]
    cluster.admin("DELETE", "/v1/teams/another")


def test_a_server_that_goes_away_is_said_and_the_page_comes_back(tab, cluster) -> None:
    page = tab(expected=("ERR_", "Failed to load")).open("#/jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    cluster.server.end(signal.SIGKILL)
    expect(page.locator(".away")).to_contain_text("The server does not answer since")
    expect(page.locator("tbody tr").first).to_be_visible()  # what was known stays
    cluster.server.start()
    expect(page.locator(".away")).to_have_count(0)
    job = cluster.submit("cho", "later", "true", priority=90)
    expect(page.get_by_role("link", name=job)).to_be_visible()
    cluster.admin("DELETE", f"/v1/jobs/{cluster.jobs.pop('later')}")
    expect(page.get_by_role("link", name=job)).to_have_count(0)


def test_errors_are_shown_in_the_words_of_the_server(tab, cluster) -> None:
    asks = tab("ann", expected=("422", "404"))
    page = asks.open(f"#/jobs/{cluster.jobs['sweep-3']}")
    page.get_by_role("button", name="Resume").click()
    page.get_by_label("Learners").fill("9999")
    page.locator("dialog").get_by_role("button", name="Resume").click()
    expect(page.locator(".notice.wrong")).to_contain_text("9999 learners")
    page = asks.open("#/jobs/none-such")
    expect(page.locator(".error-box")).to_contain_text("there is no job 'none-such'")
