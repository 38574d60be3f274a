"""Libraries in C that tests load into a process before all others."""

import functools
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def library(source):
    """Builds it once."""
    target = Path(tempfile.mkdtemp(prefix="mayfly-preload-")) / f"{source.stem}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", target, source, "-ldl"], check=True)
    return target
