"""C libraries that tests load into a process with LD_PRELOAD."""

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent


@functools.cache
def library(source):
    """Compiles a source, named relative to this folder, once. Returns the library's path, which every user can read."""
    folder = Path(tempfile.mkdtemp(prefix="mayfly-preload-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = (folder / source).with_suffix(".so").name
    # Bound at the start, as the broker is: a call bound at its first use saves all registers, and what is in them, on the stack.
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-Wl,-z,now", "-Wall", "-Werror", "-o", folder / target, SOURCES / source, "-ldl"], check=True)
    return folder / target
