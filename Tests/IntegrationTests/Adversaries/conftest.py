"""The story that most adversaries look at."""

import json
import subprocess

import pytest

from clocks import Clocks
from long_story import LongStory
from processes import BINARY, clean_environment


@pytest.fixture(scope="session")
def story():
    """One broker and its days; see long_story.py."""
    story = LongStory()
    yield story
    still_running = story.stage.broker.running
    story.close()
    assert still_running, "the broker ended while the adversaries' tests ran"


@pytest.fixture
def drill(tmp_path):
    """Runs a drill on an image, at its moment. Returns {subject: (held, opens)}."""
    clock = Clocks(tmp_path / "clock")
    environment = clean_environment(**clock.environment)

    def ask(image, *question):
        clock.ahead += image.now - clock.now
        folder = tmp_path / f"state-{len(list(tmp_path.iterdir()))}"
        for name, content in [*image.database.items(), *((f"keys/{name}", content) for name, content in image.keys.items())]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / name).touch(0o600)
            (folder / name).write_bytes(content)
        ran = subprocess.run(
            [BINARY, "drill", "--json", "--state", folder, *question], capture_output=True, text=True, timeout=30, env=environment)
        assert ran.returncode == 0, ran.stderr
        return {each["subject"]: (each["held"], each["opens"]) for each in json.loads(ran.stdout)["findings"]}
    return ask
