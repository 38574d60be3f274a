"""The real nginx as a server of files and nothing else, with the configuration that docs/production.md shows."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from processes import REPOSITORY, eventually, free_port, http_status

FRAME = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1; {root}
events {{ worker_connections 64; }}
http {{
  access_log off; types {{ }}
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port};
{locations}
  }}
}}
"""


def documented():
    """The locations that the manual tells an operator to write, for the folder /srv/mayfly/audit."""
    manual = (REPOSITORY / "docs/production.md").read_text()
    return re.search(r"```nginx\n# The log as files\n(.*?)```", manual, re.S).group(1)


class StaticServer:
    def __init__(self, log):
        self.folder, self.port = Path(tempfile.mkdtemp(prefix="mayfly-static-")), free_port()
        file = self.folder / "nginx.conf"
        file.write_text(FRAME.format(
            folder=self.folder, port=self.port, root="user root;" if Path("/proc/self").stat().st_uid == 0 else "",
            locations=documented().replace("/srv/mayfly/audit", str(log))))
        path = shutil.which("nginx") or "/usr/sbin/nginx"
        self.prints = open(self.folder / "prints", "wb")
        self.child = subprocess.Popen(
            [path, "-c", file, "-p", self.folder], stdin=subprocess.DEVNULL, stdout=self.prints, stderr=self.prints)
        try:
            eventually(self.answers, 10, what="nginx answering")
        except BaseException:
            self.close()
            raise

    def answers(self):
        assert self.child.poll() is None, f"nginx ended:\n{(self.folder / 'prints').read_text()}"
        return http_status(self.url) is not None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/audit/"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.child.terminate()
        self.child.wait(10)
        self.prints.close()
        shutil.rmtree(self.folder, ignore_errors=True)
