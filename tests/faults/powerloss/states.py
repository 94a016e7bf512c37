"""The choice of crash states of a recording: the telling ones first, then as many by chance as there is time for.

First of all: everything was done, and only synced operations last.

At a moment (right after something was acknowledged, right before something is synced, right after it) there is a set of
operations that are not durable yet. Tried are: all of them lost; none; each alone lost; each alone kept; each write torn in
the middle, or there as zeros; every name kept and no data; and subsets by chance. States that come out alike, byte for byte
and with the same acknowledged, are tried once.

`journaled` leaves out what no file system with a journal and a page cache does: names come in their order, and what was
written to one page comes in its order, for the page is written back whole. Data may still come after names, or not at all.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest

from tests.faults.powerloss.disk import Crash, Disk, Entries, Reply, Size, Sync, Write

__all__ = ["Sample", "choose", "without_one"]

_PAGE = 4096
_SINGLES = 40  # single operations that are tried at one moment, of the waiting ones


@dataclass
class Sample:
    """The crash states to try, and how many more were looked at and are the same as one of those."""

    crashes: list[Crash] = field(default_factory=list)
    alike: int = 0


def choose(disk: Disk, count: int, seed: int, journaled: bool = False, replies: Sequence[int] | None = None) -> Sample:
    """At most `wanted` different crash states: at the end and after every acknowledgement with everything else lost, then in
    turns of each other way, then by chance. `answered` are the numbers of operations after which something was acknowledged,
    where the disk has not recorded that itself."""
    chance = random.Random(seed)
    if replies is None:
        replies = [at + 1 for at, operation in enumerate(disk.operations) if isinstance(operation, Reply)]
    moments = list(_moments(disk, frozenset(replies)))
    files = [re.sub(r"\d+", "", words.split(" ")[1]) if " " in words else "" for words in disk.words()]
    ways: dict[str, list[Callable[[], Crash]]] = {}
    for at, open_writes, is_answer in moments:
        for way, make in _at(disk, at, open_writes, chance, files):
            factory = partial(_in_order, disk, make, open_writes) if journaled else make
            ways.setdefault(f"{'said' if is_answer else 'sync'}: {way}", []).append(factory)
    first = ways.pop("said: all", [])
    if len(first) > count // 2:
        chance.shuffle(first)
        ways["said: all"], first = first[count // 2 :], first[: count // 2]
    for factories in ways.values():
        chance.shuffle(factories)
    at, open_writes, _ = moments[-1]  # when all has been promised that ever is
    end = Crash(at, frozenset(open_writes), reason="all lost")
    turns = (make for turn in zip_longest(*ways.values()) for make in turn if make is not None)
    crashes = chain([end], (make() for make in chain(first, turns)))
    return _different(disk, crashes, count, sorted(replies))


def without_one(disk: Disk, pick: Callable[[str], bool], count: int) -> list[Crash]:
    """At most `wanted` states in which one operation alone is lost, if `pick` accepts its words."""
    words = disk.words()
    crashes = (
        Crash(at, frozenset({key}), reason=f"lost: {words[key]}")
        for at, open_writes, _ in _moments(disk, frozenset())
        for key in open_writes
        if pick(words[key])
    )
    return _different(disk, crashes, count, range(len(disk.operations))).crashes


def _moments(disk: Disk, replies: Collection[int]) -> Iterator[tuple[int, tuple[int, ...], bool]]:
    """Yield (number of operations, the not durable ones, whether it follows an acknowledgement)."""
    states = list(disk.open_operations())
    first = disk.operations.index(Sync(None))  # before that is what a person has brought
    for at, operation in list(enumerate(disk.operations))[first + 1 :]:
        if isinstance(operation, Sync):
            yield *states[at], False
            yield *states[at + 1], False
        if at + 1 in replies:
            yield *states[at + 1], True
    yield *states[-1], False


def _at(
    disk: Disk, at: int, open_keys: tuple[int, ...], chance: random.Random, files: Sequence[str]
) -> Iterator[tuple[str, Callable[[], Crash]]]:
    """Yield possible states of a moment: (the way, its factory). Few of them are made. Where one write is torn the way names its
    file, too: there are many writes of marks and caches, and few of what counts."""
    writes = frozenset(open_keys)
    names = frozenset(key for key in open_keys if isinstance(disk.operations[key], Entries))
    data = writes - names
    yield "all", partial(Crash, at, writes, reason="all lost")
    yield "none", partial(Crash, at, reason="none lost")
    yield "data", partial(Crash, at, data, reason="data lost")
    yield "names", partial(Crash, at, names, reason="names lost")
    for key in open_keys if len(open_keys) <= _SINGLES else chance.sample(open_keys, _SINGLES):
        yield "one", partial(Crash, at, frozenset({key}), reason=f"one lost: {key}")
        yield "one", partial(_all_but, at, writes, key, (), f"one kept: {key}")
        operation = disk.operations[key]
        if isinstance(operation, Write) and operation.data:
            half = chance.randrange(len(operation.data))
            torn, zeros = ((key, half),), ((key, -half - 1),)
            yield f"torn: {files[key]}", partial(Crash, at, torn=torn, reason=f"torn: {key} at {half}")
            yield f"zeros: {files[key]}", partial(Crash, at, torn=zeros, reason=f"zeros: {key} from {half}")
            yield f"torn {files[key]}", partial(_all_but, at, data, key, torn, f"torn and the last: {key} at {half}")
    for _ in range(4 if open_keys else 0):
        yield "by", partial(_by_chance, disk, at, open_keys, chance)


def _all_but(at: int, lost: frozenset[int], key: int, torn: tuple[tuple[int, int], ...], reason: str) -> Crash:
    return Crash(at, lost - {key}, torn, reason)


def _by_chance(disk: Disk, at: int, open_keys: tuple[int, ...], chance: random.Random) -> Crash:
    lost = frozenset(key for key in open_keys if chance.random() < 0.5)
    torn = tuple(
        (key, chance.choice((1, -1)) * chance.randrange(1, len(operation.data) + 1))
        for key in open_keys
        if key not in lost
        and isinstance(operation := disk.operations[key], Write)
        and operation.data
        and chance.random() < 0.2
    )
    return Crash(at, lost, torn, reason="by chance")


def _in_order(disk: Disk, make: Callable[[], Crash], open_keys: tuple[int, ...]) -> Crash:
    """The nearest state that a file system with a journal may leave: what comes after something lost is lost with it."""
    crash = make()
    lost, torn, broken = set(crash.lost), dict(crash.torn), set()
    names_end = False
    for key in open_keys:
        match disk.operations[key]:
            case Entries():
                names_end = names_end or key in lost
                if names_end:
                    lost.add(key)
            case Size(node):
                if any(place[0] == node for place in broken):
                    lost.add(key)
                if key in lost:
                    broken.add((node, -1))
            case Write(node, offset, data):
                pages = {(node, page) for page in range(offset // _PAGE, (offset + len(data)) // _PAGE + 1)}
                if key not in lost and broken & {*pages, (node, -1)}:
                    lost.add(key)
                if key in lost or key in torn:
                    broken |= pages
    return replace(crash, lost=frozenset(lost), torn=tuple(item for item in torn.items() if item[0] not in lost))


def _different(disk: Disk, crashes: Iterable[Crash], count: int, replies: Sequence[int]) -> Sample:
    """Return the states that differ in the disk's content or in the acknowledgements by then."""
    sample = Sample()
    operations = [key for key, operation in enumerate(disk.operations) if not isinstance(operation, Reply | Sync)]
    seen: set[object] = set()
    for crash in crashes:
        acks = bisect_right(replies, crash.at)
        mark = (acks, crash.torn, frozenset(key for key in operations if key < crash.at and key not in crash.lost))
        if mark not in seen and (content := (acks, disk.digest(crash))) not in seen:
            seen |= {mark, content}
            sample.crashes.append(crash)
            if len(sample.crashes) == count:
                break
        else:
            seen.add(mark)
            sample.alike += 1
    return sample
