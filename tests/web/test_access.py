"""Who may come in, and what a text of somebody else's may do: nothing."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from tests.web.conftest import EVIL, Site

PAGES = ("/", "/tasks/lease", "/tasks/count", "/tasks/paint", "/tasks/lease/turns/1", "/mail", "/mail/human?folder=sent",
         "/mail/analyst", "/agents/reviewer", "/knowledge", "/memory", "/journal", "/costs",
         "/files?path=knowledge/lease.md&first=3&last=3")  # fmt: skip


def test_the_link_lets_in_once_and_leaves_no_token_in_the_address(site: Site) -> None:
    got = site.ask("GET", f"/tasks/lease?token={site.token}")
    assert (got.status, got.headers["location"]) == (303, "/tasks/lease")
    assert {"HttpOnly", "SameSite=Strict"} <= set(got.headers["set-cookie"].split("; "))


@pytest.mark.parametrize("cookie", ["", "hivemind-{port}=wrong", "other={token}"])
def test_nothing_is_shown_without_the_token(site: Site, cookie: str) -> None:
    shown = {"Cookie": cookie.format(port=site.port, token=site.token)}
    for path in (*PAGES, "/live"):
        got = site.ask("GET", path, headers=shown)
        assert got.status == 401, path
        assert "lease" not in got.text
    assert site.ask("GET", "/?token=wrong").status == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1"])
def test_a_foreign_host_is_refused(site: Site, host: str) -> None:
    assert site.get("/", Host=host.format(port=site.port)).status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_a_foreign_origin_is_refused(site: Site, origin: str) -> None:
    told = origin.format(port=site.port)
    assert site.get("/", Origin=told).text == "Another site's page asked for this.\n"
    assert site.send("/do/retry", {"task": "lease"}, Origin=told).status == 403


def test_what_changes_something_needs_the_origin_the_cookie_and_the_key_of_the_form(site: Site) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": site.cookie}
    refused = site.ask("POST", "/do/retry", b"task=lease", form)
    assert (refused.status, refused.text) == (403, "A program that names no Origin asked for this.\n")
    assert site.send("/do/retry", {"task": "lease"}).status == 403  # no key
    assert site.send("/do/retry", {"task": "lease", "form_key": site.token}).status == 403
    assert site.send("/do/retry", {"task": "lease"}, Cookie="").status == 401
    assert site.get("/do/retry?task=lease").status == 405
    assert site.hive.tasks.outcome("lease") == "done"


def test_another_sites_page_gets_no_part_of_ours(site: Site) -> None:
    assert site.get("/", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}).status == 403


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_plain_html_under_a_strict_policy(site: Site, path: str) -> None:
    got = site.get(path)
    assert got.status == 200
    policy = got.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert EVIL not in got.text
    assert wrong_in(got.text) == []
    assert len(got.text) < 200_000


def wrong_in(page: str) -> list[str]:
    """What a browser could run, or fetch from elsewhere."""
    found: list[str] = []

    class Look(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            told = dict(attributes)
            if tag in ("img", "style", "iframe", "object", "base") or (tag == "script" and not told.get("src")):
                found.append(tag)
            for name, value in told.items():
                leads = name in ("src", "href", "action", "hx-get", "sse-connect")
                if name.startswith("on") or name == "style" or (leads and not (value or "").startswith(("/", "#"))):
                    found.append(f"{tag} {name}={value}")

    Look().feed(page)
    return found


def test_secrets_are_masked_on_the_page_as_in_the_log(own_site: Site) -> None:
    secret = "ghp_" + "a1B2" * 9
    (own_site.hive.layout.inbox / "told.md").write_text(f"Use {secret} for it.\n")
    (own_site.hive.layout.knowledge / "told.md").write_text(f"The key is {secret}.\n")
    assert "told" in own_site.get("/").text
    for path in ("/", "/tasks/told", "/files?path=knowledge/told.md"):
        assert secret not in own_site.get(path).text


@pytest.mark.parametrize("path", [".hive/mail.key", "../../etc/passwd", "/etc/passwd", "knowledge/nothing.md"])
def test_no_file_is_shown_that_an_agent_may_not_read(site: Site, path: str) -> None:
    assert site.get(f"/files?path={path}").status == 404


NOTHING = ("/tasks/nothing", "/agents/nobody", "/mail/human/nothing", "/tasks/lease/turns/99", "/mail/nobody%2F..",
           "/knowledge/nothing", "/journal?before=x", "/?page=9999999999999999")  # fmt: skip


@pytest.mark.parametrize("path", NOTHING)
def test_what_is_not_there_is_said_in_a_line(site: Site, path: str) -> None:
    got = site.get(path)
    assert got.status in (200, 404)
    assert "Traceback" not in got.text
