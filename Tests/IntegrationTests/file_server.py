"""nginx as a server of files: any server of files can publish a log and the auditor's page."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from processes import eventually, free_port, http_status

CONFIGURATION = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
{root}
events {{ worker_connections 512; }}
http {{
  access_log {folder}/access.log combined buffer=32k flush=1s; sendfile on; keepalive_requests 100000;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  types {{ text/html html; text/css css; text/javascript js; application/json json; }}
  default_type application/octet-stream;
  server {{ listen 127.0.0.1:{port}; root {files}; }}
}}
"""


def roomy_folder(prefix):
    """A new folder for very many files: in memory if there is a gigabyte of it, since a disk takes its time to forget them."""
    memory = Path("/dev/shm")
    free = shutil.disk_usage(memory).free if os.access(memory, os.W_OK) else 0
    return Path(tempfile.mkdtemp(prefix=prefix, dir=memory if free > 1 << 30 else None))


class FileServer:
    """Serves the folder `files`, which goes away with it."""

    def __init__(self):
        self.port, self.folder = free_port(), roomy_folder("mayfly-nginx-")
        self.files = self.folder / "files"
        self.files.mkdir()
        (self.folder / "nginx.conf").write_text(CONFIGURATION.format(
            folder=self.folder, files=self.files, port=self.port,
            root="user root;" if os.getuid() == 0 else ""))
        self.process = subprocess.Popen(
            [shutil.which("nginx") or "/usr/sbin/nginx", "-p", self.folder, "-c", self.folder / "nginx.conf"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: http_status(f"{self.url}/none") == 404, 10, what="nginx")
        except BaseException:
            self.close()
            raise

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
