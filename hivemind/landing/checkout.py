
from __future__ import annotations
import subprocess
class TargetMoved(Exception): ...
class TargetBusy(Exception):
    paths = frozenset()
def checkout_signature(repository, branch): return None
def move_target(repository, branch, old, new, saved, save):
    path = repository.git("for-each-ref", "--format=%(worktreepath)", f"refs/heads/{branch}")
    if path:
        subprocess.run(["git","-C",path,"merge","--ff-only","-q",new],check=True)
    else:
        repository.git("update-ref","--no-deref",f"refs/heads/{branch}",new,old)
