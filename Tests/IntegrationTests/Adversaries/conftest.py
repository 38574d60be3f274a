"""The story that most adversaries look at."""

import pytest

from long_story import LongStory


@pytest.fixture(scope="session")
def story():
    """One broker and its days; see long_story.py."""
    story = LongStory()
    yield story
    still_running = story.stage.broker.running
    story.close()
    assert still_running, "the broker ended while the adversaries' tests ran"
