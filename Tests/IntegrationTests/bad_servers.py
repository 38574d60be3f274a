"""Faulty servers in APNs' place. Each is a process of its own, so that a flood takes no CPU from the tests.

python bad_servers.py KIND PORT CERTIFICATE: prints a line for each connection.
"""

import socket
import ssl
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from http2_frames import ACK, DATA, END_HEADERS, HEADERS, PING, SETTINGS, frame, settings

OK = bytes([0x88])  # `:status: 200` of the static table.


def frames(connection):
    """(kind, flags, stream, payload) of each received frame; the preface is skipped."""
    data = b""
    while part := connection.recv(65536):
        data += part
        if data.startswith(b"PRI"):
            if len(data) < 24:
                continue
            data = data[24:]
        while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
            end = 9 + int.from_bytes(data[:3], "big")
            yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:end]
            data = data[end:]


def http2(connection, request=lambda connection, stream: None):
    """A correct server, except for what `request` does with a request. By default it never answers."""
    connection.sendall(settings())
    for kind, flags, stream, _ in frames(connection):
        if kind == SETTINGS and not flags & ACK:
            connection.sendall(settings(flags=ACK))
        if kind == PING and not flags & ACK:
            connection.sendall(frame(PING, 0, bytes(8), ACK))
        if kind == HEADERS:
            request(connection, stream)


def http1(connection):
    connection.recv(65536)
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: 14\r\nConnection: close\r\n\r\n"
    connection.sendall(head + b"<h1>nginx</h1>")


def wait(connection):
    while connection.recv(65536):
        pass


def flood(connection, content):
    """Sends the same frames without end, while another thread reads the answers."""
    threading.Thread(target=wait, args=(connection,), daemon=True).start()
    connection.sendall(settings())
    while True:
        connection.sendall(content)


def endless_body(connection, stream):
    connection.sendall(frame(HEADERS, stream, OK, END_HEADERS))
    while True:
        connection.sendall(frame(DATA, stream, bytes(16384)))


SERVERS = {
    "http/1.1": http1, "no answer": http2, "certificate": http2,
    "ping flood": lambda connection: flood(connection, frame(PING, 0, bytes(8)) * 1000),
    "endless body": lambda connection: http2(connection, endless_body)}


def serve(kind, port, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["http/1.1"] if kind == "http/1.1" else ["h2"])

    def one(connection):
        try:
            SERVERS[kind](context.wrap_socket(connection, server_side=True))
        except (OSError, ssl.SSLError):
            pass
        finally:
            connection.close()
    listener = socket.create_server(("127.0.0.1", port))
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        print(time.time(), flush=True)
        threading.Thread(target=one, args=(connection,), daemon=True).start()


class BadServer:
    def __init__(self, kind, port, certificate, output):
        self.command, self.output = [sys.executable, __file__, kind, str(port), certificate], output

    def __enter__(self):
        with open(self.output, "wb") as output:
            self.child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output)
        while "ready" not in self.output.read_text():
            assert self.child.poll() is None
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait(10)

    @property
    def connects(self):
        return [float(line) for line in self.output.read_text().splitlines()[1:]]


def expired_certificate(folder):
    """A self-signed certificate for 127.0.0.1 that expired yesterday, with its key in one file; and the file without the key."""
    now, key = datetime.now(timezone.utc), ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "apns.mayfly.test")])
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=10)).not_valid_after(now - timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .sign(key, hashes.SHA256()))
    path, trusted = folder / "expired.pem", folder / "expired-ca.pem"
    encoded = made.public_bytes(serialization.Encoding.PEM)
    path.write_bytes(encoded + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    trusted.write_bytes(encoded)
    return path, trusted


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
