"""nginx as a server of files, and nothing else."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from processes import REPOSITORY, eventually, free_port, http_status

CONFIGURATION = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1; {root}
events {{ worker_connections 512; }}
http {{
  access_log {folder}/access.log combined buffer=32k flush=1s; sendfile on; keepalive_requests 100000;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  {types}
  server {{ listen 127.0.0.1:{port}; {locations} }}
}}
"""


def roomy_folder(prefix):
    """A new folder for many files. It is in memory if a gigabyte is free there, since a disk deletes files slowly."""
    memory = Path("/dev/shm")
    free = shutil.disk_usage(memory).free if os.access(memory, os.W_OK) else 0
    return Path(tempfile.mkdtemp(prefix=prefix, dir=memory if free > 1 << 30 else None))


class FileServer:
    """Serves its folder `files`, which is removed with it."""

    types = "types { text/html html; text/css css; text/javascript js; application/json json; } default_type application/octet-stream;"
    path = ""

    def __init__(self):
        self.port, self.folder = free_port(), roomy_folder("mayfly-nginx-")
        self.files = self.folder / "files"
        self.files.mkdir()
        file = self.folder / "nginx.conf"
        file.write_text(CONFIGURATION.format(
            folder=self.folder, port=self.port, root="user root;" if os.getuid() == 0 else "", types=self.types, locations=self.locations()))
        with open(self.folder / "prints", "wb") as prints:
            self.child = subprocess.Popen(
                [shutil.which("nginx") or "/usr/sbin/nginx", "-p", self.folder, "-c", file], stdin=subprocess.DEVNULL, stdout=prints, stderr=prints)
        try:
            eventually(self.answers, what="nginx answering")
        except BaseException:
            self.close()
            raise

    def locations(self):
        return f"root {self.files};"

    def answers(self):
        assert self.child.poll() is None, f"nginx ended:\n{(self.folder / 'prints').read_text()}"
        return http_status(self.url) is not None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}{self.path}"

    def close(self):
        self.child.terminate()
        self.child.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class DocumentedServer(FileServer):
    """Serves a log with the configuration that docs/production.md shows."""

    types, path = "types { }", "/audit/"

    def __init__(self, log):
        self.log = log
        super().__init__()

    def locations(self):
        manual = (REPOSITORY / "docs/production.md").read_text()
        return re.search(r"```nginx\n# The log as files\n(.*?)```", manual, re.S)[1].replace("/srv/mayfly/audit", str(self.log))
