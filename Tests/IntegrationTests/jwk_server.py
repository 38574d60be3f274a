"""A login's server for its JWK set, over https, and faults of it."""

import json
import socket
import ssl
import threading
import time
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder, name, host="localhost", days=90):
    """A self-signed certificate for `host`, with its key in one file. A negative number of days: it has expired."""
    now, key = datetime.now(timezone.utc), ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=100)).not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host), x509.IPAddress(ip_address("127.0.0.2"))]), critical=False)
            .sign(key, hashes.SHA256()))
    path = folder / f"{name}.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return path


def answer(body, status="200 OK", headers=()):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def drip(connection, data):
    """A byte a second, without end."""
    for byte in data + b" " * 3600:
        connection.sendall(bytes([byte]))
        time.sleep(1)


def endless(connection, _):
    connection.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
    while True:
        connection.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")


def interim(connection, _):
    """Interim responses (RFC 9110 section 15.2) without end."""
    while True:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)


class KeyServer:
    """`keys`: the set. `fault`: a function of a connection and the good answer, in place of that answer."""

    def __init__(self, path, *keys):
        self.path, self.keys, self.fault = path, list(keys), None
        self.requests, self.connections = [], 0
        self.reload()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def reload(self, path=None):
        """Shows this certificate from now on."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(path or self.path)

    @property
    def url(self):
        return f"https://localhost:{self.port}/keys?tenant=secret-tenant"

    @property
    def set(self):
        return {"keys": self.keys}

    def close(self):
        """Nothing listens any more."""
        self.closed = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def open(self):
        """Listens again, at the same port."""
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        listener = self.listener
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            if self.fault == "no handshake":
                connection.recv(1)
                time.sleep(3600)
            with self.context.wrap_socket(connection, server_side=True) as connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    part = connection.recv(4096)
                    if not part:
                        return
                    request += part
                self.requests.append(request.decode())
                good = answer(self.set)
                self.fault(connection, good) if self.fault else connection.sendall(good)
        except OSError:
            pass
        finally:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.closed:
            self.close()
