"""Every change of scripts/switch-off still fits the sources."""

import subprocess

from processes import REPOSITORY


def test_every_change_fits():
    done = subprocess.run([REPOSITORY / "scripts/switch-off", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 misfits" in done.stdout
