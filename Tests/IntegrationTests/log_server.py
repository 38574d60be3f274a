"""A server of files in the tests' own process, which can also misbehave."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    extensions_map = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", "": "application/octet-stream"}

    def do_GET(self):
        path = unquote(self.path)
        self.server.asked.append(path)
        if self.server.status:
            return self.send_error(self.server.status)
        answer = self.server.answers.get(path)
        if callable(answer):
            answer = answer(self)
        if answer is None:
            return super().do_GET()
        if answer is False:
            self.close_connection = True
            return None
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_head(self):
        # A folder has no listing here.
        path = Path(self.translate_path(self.path))
        if not path.is_file() and not (path / "index.html").is_file():
            self.send_error(404)
            return None
        return super().send_head()

    def log_message(self, *_):
        pass


class LogServer(ThreadingHTTPServer):
    """Serves a folder. `asked`: every requested path. `status`: the answer to all requests, if set. `answers`: for a path the bytes, or
    (status, bytes), or a function of the handler that returns one of these, or False if the function has sent an answer itself."""

    daemon_threads = True

    def __init__(self, folder, status=None, port=0):
        super().__init__(("127.0.0.1", port), functools.partial(_Handler, directory=str(folder)))
        self.folder, self.status, self.answers, self.asked = Path(folder), status, {}, []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        pass  # A browser may close the connection early.

    def close(self):
        if self.socket.fileno() >= 0:
            self.shutdown()
            self.server_close()
