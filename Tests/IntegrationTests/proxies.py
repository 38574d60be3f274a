"""The real nginx and HAProxy in front of a broker. Both refuse every request with the header line `Hidden`, so that one which arrives
all the same was smuggled. `lenient` has them pass on what they would rather refuse: that is for the broker to see through."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from peers import Peer
from processes import eventually, free_port

NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
{root}
events {{ worker_connections 512; }}
http {{
  access_log off; default_type text/plain;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  client_header_timeout 1s; client_body_timeout 1s; lingering_close off; keepalive_requests 100000;
  large_client_header_buffers 8 64k; client_max_body_size 1m;
  {leniency}
  map $http_upgrade $upstream_connection {{ default upgrade; "" ""; }}
  upstream broker {{ server {upstream}; keepalive 1; keepalive_requests 100000; }}
  server {{
    listen 127.0.0.1:{port};
    if ($http_hidden) {{ return 403; }}
    proxy_http_version 1.1;
    proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header Connection $upstream_connection;
    proxy_set_header Upgrade $http_upgrade;
    location / {{ proxy_pass http://broker; }}
  }}
}}
"""

HAPROXY = """
defaults
  mode http
  timeout connect 1s
  timeout client 1s
  timeout server 15s
  timeout http-request 1s
  timeout http-keep-alive 10s
  timeout tunnel 10s
  option forwardfor
  http-reuse always
frontend apps
  bind 127.0.0.1:{port}
  {leniency}
  http-request deny if {{ req.hdr(Hidden) -m found }}
  default_backend broker
backend broker
  server broker {upstream} {single}
"""

LENIENT = {
    "nginx": "ignore_invalid_headers off; underscores_in_headers on; merge_slashes off; proxy_request_buffering off;",
    "haproxy": "option accept-invalid-http-request",
}


class Proxy:
    """One of them, with its connections to `upstream` (a port or a socket's path) kept; `single`: never two of them at a time."""

    def __init__(self, kind, upstream, lenient=False, single=True):
        self.kind, self.port = kind, free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"mayfly-{kind}-"))
        where = f"127.0.0.1:{upstream}" if isinstance(upstream, int) else f"unix{'@' if kind == 'haproxy' else ':'}{upstream}"
        text = (NGINX if kind == "nginx" else HAPROXY).format(
            folder=self.folder, port=self.port, upstream=where, leniency=LENIENT[kind] if lenient else "",
            single="pool-max-conn 1" if single else "", root="user root;" if Path("/proc/self").stat().st_uid == 0 else "")
        file = self.folder / "proxy.conf"
        file.write_text(text)
        path = shutil.which(kind) or f"/usr/sbin/{kind}"
        command = [path, "-c", file, "-p", self.folder] if kind == "nginx" else [path, "-f", file, "-db"]
        self.prints = open(self.folder / "prints", "wb")
        self.child = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=self.prints, stderr=self.prints)
        try:
            eventually(self.listens, 10, what=f"{kind} listening")
        except BaseException:
            self.close()
            raise

    def listens(self):
        assert self.child.poll() is None, f"{self.kind} ended:\n{(self.folder / 'prints').read_text()}"
        try:
            Peer(self.port).__exit__()
        except OSError:
            return False
        return True

    def connect(self, **more):
        return Peer(self.port, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.child.terminate()
        self.child.wait(10)
        self.prints.close()
        shutil.rmtree(self.folder, ignore_errors=True)
