"""The page of lessons: what agents have learned, its evidence, and what a person decides about it."""

from __future__ import annotations

from hivemind.lessons.choice import all_books
from hivemind.web.site import Page, PageQuery, Site


def show_lessons(site: Site, query: PageQuery) -> Page:
    """Build the list of lessons of all roots, or of the query's `root`: waiting lessons first, retired lessons last."""
    order = ("waiting", "live", "foreign", "retired")
    books = {
        book.name: sorted(book.read(), key=lambda record: order.index(record.state)) for book in all_books(site.hive)
    }
    root = query.choice("root", tuple(books), "")
    chosen_books = {name: records for name, records in books.items() if records and root in ("", name)}
    return Page("lessons.html", {"books": chosen_books, "names": list(books), "wanted": root}, "Lessons", ("journal",))
