"""The first page of an app developer: docs/rooms.md, "A page of your own", in a real browser."""

import re
import shlex
import shutil
import subprocess
import sys

from page_fixtures import browser  # noqa: F401
from processes import REPOSITORY, eventually, free_port, http_status
from world import World


GUIDE = (REPOSITORY / "docs/rooms.md").read_text()


def blocks(language):
    section = GUIDE.split("\n## A page of your own\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.M | re.S)


def test_the_page_of_the_rooms_guide_gets_a_push(browser, tmp_path):  # noqa: F811
    """Its commands and its page as they are written, on other ports and in another folder."""
    [page], [serve] = blocks("html"), blocks("sh")
    [origin] = re.findall(r"`MAYFLY_CORS_ORIGINS=(\S+) make run`", GUIDE)
    port, folder = str(free_port()), tmp_path / "javascript"
    shutil.copytree(REPOSITORY / "clients/javascript", folder, ignore=shutil.ignore_patterns("node_modules"))
    origin = origin.replace("8000", port)
    program, *arguments = shlex.split(serve.replace("clients/javascript", str(folder)).replace("8000", port))
    assert program == "python3"
    with World(cors_origins=origin) as world:
        (folder / "mine.html").write_text(page.replace(":8787", f":{world.broker.port}"))
        server = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"{origin}/mine.html"
            eventually(lambda: http_status(url) == 200, what="the web server")
            with browser.open(url) as ann:
                ann.value("document.getElementById('make').click()")
                ann.wait("document.getElementById('log').textContent.includes('joined')")
                handle = re.search(r"pushes: (\S{22})", ann.text("#log"))[1]
                code = re.search(r"code: (\S{5}-\S{5})", ann.text("#log"))[1]
            with browser.open(url) as ben:
                ben.value(f"document.getElementById('code').value = '{code}'")
                ben.value("document.getElementById('accept').click()")
                ben.wait("document.getElementById('log').textContent.includes('joined')")
                [push] = eventually(world.simulator.pushes, 30, what="the push to Ann's phone")
                assert push["payload"]["roomId"] == handle
                assert not [line for line in ann.complaints + ben.complaints if "favicon" not in line]
        finally:
            server.terminate()
            server.wait(10)
