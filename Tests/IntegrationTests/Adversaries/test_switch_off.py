"""The list of what scripts/switch-off can switch off: every change still fits the sources, and docs/threat-model.md has the same list."""

import subprocess

from processes import REPOSITORY


def switch_off(option):
    done = subprocess.run([REPOSITORY / "scripts/switch-off", option], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_change_fits():
    assert ", 0 do not fit" in switch_off("--check")


def test_the_document_has_the_list():
    page = (REPOSITORY / "docs/threat-model.md").read_text()
    for line in switch_off("--list").splitlines():
        assert line in page, f"docs/threat-model.md lacks: {line}"
