"""The real nginx and HAProxy in front of a broker. Both refuse every request with the header line `Hidden`, so a request with it that reaches the
broker was smuggled. With `lenient` they pass on doubtful requests, which the broker has to refuse."""

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
    {secure_listener}
    if ($http_hidden) {{ return 403; }}
    proxy_http_version 1.1;
    proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header Connection $upstream_connection;
    proxy_set_header Upgrade $http_upgrade;
    location / {{ proxy_pass {scheme}://broker; }}
  }}
}}
"""

HAPROXY = """
global
  nbthread 1
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
  {secure_listener}
  {leniency}
  http-request deny if {{ req.hdr(Hidden) -m found }}
  default_backend broker
backend broker
  server broker {upstream} {options}
"""

LENIENT = {
    "nginx": "ignore_invalid_headers off; underscores_in_headers on; merge_slashes off; proxy_request_buffering off;",
    "haproxy": "option accept-invalid-http-request",
}


SECURE_LISTENER = {
    "nginx": "listen 127.0.0.1:{port} ssl http2; ssl_certificate {certificate}; ssl_certificate_key {key};",
    "haproxy": "bind 127.0.0.1:{port} ssl crt {folder}/both.pem alpn h2,http/1.1",
}


class Proxy:
    """One of them, with one idle connection to `upstream` (a port or a socket's path) kept. `secure`: that speaks TLS; with HTTP/1.1, since
    nginx has no other and HAProxy 2.6 misses that the broker keeps no header table (RFC 9113 section 4.3.1: its COMPRESSION_ERROR).
    With a `certificate` the proxy itself listens for HTTP/2 as well, on `secure_port`."""

    def __init__(self, kind, upstream, lenient=False, secure=False, certificate=None):
        self.kind, self.port, self.secure_port = kind, free_port(), free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"mayfly-{kind}-"))
        listener = ""
        if certificate:
            (self.folder / "both.pem").write_text(certificate.path.read_text() + certificate.key.read_text())
            listener = SECURE_LISTENER[kind].format(
                port=self.secure_port, folder=self.folder, certificate=certificate.path, key=certificate.key)
        where = f"127.0.0.1:{upstream}" if isinstance(upstream, int) else f"unix{'@' if kind == 'haproxy' else ':'}{upstream}"
        text = (NGINX if kind == "nginx" else HAPROXY).format(
            folder=self.folder, port=self.port, upstream=where, leniency=LENIENT[kind] if lenient else "",
            options="pool-max-conn 1" + (" ssl verify none alpn http/1.1" if secure else ""), scheme="https" if secure else "http",
            secure_listener=listener, root="user root;" if Path("/proc/self").stat().st_uid == 0 else "")
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
