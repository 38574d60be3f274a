"""The list of what scripts/switch-off can switch off: every change still fits the sources, and the documents have the same list."""

import re
import subprocess

from processes import REPOSITORY


def switch_off(option):
    done = subprocess.run([REPOSITORY / "scripts/switch-off", option], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_change_fits():
    assert ", 0 do not fit" in switch_off("--check")


def test_the_documents_have_the_list():
    listed = switch_off("--list").splitlines()
    assert len(listed) > 30
    written = [
        line for page in ("threat-model", "memory") for line in (REPOSITORY / f"docs/{page}.md").read_text().splitlines()
        if re.search(r"^\|.*\(`[a-z0-9-]+`\) \| `", line)]
    assert written == listed
