"""A process that saves its working memory again and again, to be killed at some point."""

from __future__ import annotations

import sys

from hivemind.memory import FileMemoryBlock, WorkingMemoryManager

path, rounds = sys.argv[1], int(sys.argv[2])
manager = WorkingMemoryManager()
for number in range(rounds):
    manager.add_memory(FileMemoryBlock(location=f"f{number}", confidence=0.5))
    manager.remove_memory(f"f{number - 3}")
    manager.save(path)
    print(number, flush=True)
