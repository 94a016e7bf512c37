"""Who may come in, and what a text of somebody else's may do: nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.web.conftest import EVIL, Site

PAGES = ("/", "/tasks/lease", "/tasks/count", "/tasks/paint", "/tasks/lease/turns/1", "/mail", "/mail/human?folder=sent",
         "/mail/analyst", "/agents/reviewer", "/knowledge", "/memory", "/journal", "/costs",
         "/files?path=knowledge/lease.md&first=3&last=3")  # fmt: skip


@pytest.mark.parametrize("root", ["", "/s", "/s/", "/s/wrong", "{root}x", "{root}/..", "{root}%2F", "/S{root}"])
def test_nothing_is_shown_without_the_secret(site: Site, root: str) -> None:
    for path in (*PAGES, "/live", "/static/app.css"):
        got = site.ask("GET", root.format(root=site.root) + path)
        assert got.status in (401, 404), path
        assert "lease" not in got.text.partition("main")[2]
    assert site.ask("POST", "/do/retry", b"task=lease").status == 401


@pytest.mark.parametrize("path", PAGES)
def test_the_secret_leaves_with_no_cookie_no_referrer_and_no_link(site: Site, path: str) -> None:
    got = site.get(path)
    assert "set-cookie" not in got.headers
    assert got.headers["referrer-policy"] == "no-referrer"
    assert site.root.removeprefix("/s/") not in got.text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "x.localhost:{port}"]
)
def test_a_foreign_host_is_refused(site: Site, host: str) -> None:
    assert site.get("/", Host=host.format(port=site.port)).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost:65535", "[::1]:80", "localhost"])
def test_a_forwarded_port_has_another_number(site: Site, host: str) -> None:
    assert site.get("/", Host=host, Origin=f"http://{host}").status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_a_foreign_origin_is_refused(site: Site, origin: str) -> None:
    sent = origin.format(port=site.port)
    assert site.get("/", Origin=sent).text == "This request came from another site's page.\n"
    assert site.send("/do/retry", {"task": "lease", "number": "1"}, Origin=sent).status == 403


def test_what_changes_something_is_a_form_of_ours(site: Site) -> None:
    numbered = {"task": "lease", "number": "1"}
    assert "lacks" in site.send("/do/retry", {"task": "lease"}).text
    assert (
        site.send("/do/retry", numbered, **{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}).status == 403
    )
    assert site.get("/do/retry?task=lease&number=1").status == 405
    assert site.hive.tasks.listing.outcome("lease") == "done"


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
            if tag == "base" and not re.fullmatch(r"(?:\.\./)+|\./", told["href"] or ""):
                found.append(f"base {told['href']}")
            if tag == "base":
                return
            if tag in ("img", "style", "iframe", "object") or (tag == "script" and not told.get("src")):
                found.append(tag)
            for name, value in told.items():
                leads = name in ("src", "href", "action", "hx-get", "sse-connect")
                if name.startswith("on") or name == "style" or (leads and not (value or "").startswith("./")):
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
           "/knowledge/nothing", "/nowhere", "/no/such/address/", "/journal?before=x", "/?page=9999999999999999")  # fmt: skip


@pytest.mark.parametrize("path", NOTHING)
def test_what_is_not_there_is_said_in_a_line(site: Site, path: str) -> None:
    got = site.get(path)
    assert got.status in (200, 404)
    assert "Traceback" not in got.text
    assert 'href="./">' in got.text  # it leads back to the first page


def test_a_monitoring_system_needs_no_secret_and_no_foreign_host_gets_an_answer(site: Site) -> None:
    assert site.ask("GET", "/healthz").text == "ok\n"
    assert site.ask("GET", "/readyz").status == 503, "no swarm runs"
    assert "hivemind_up 0\n" in site.ask("GET", "/metrics").text
    assert site.ask("GET", "/metrics", headers={"Host": "rebound.example"}).status == 421
    assert site.ask("POST", "/metrics").status == 401
