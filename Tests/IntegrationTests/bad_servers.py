"""What answers in APNs' place and is not as it should be: a process of its own for each, so that a flood costs the tests nothing.

python bad_servers.py KIND PORT CERTIFICATE: prints a line for each connection.
"""

import os
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

from http2_frames import ACK, CONTINUATION, DATA, END_HEADERS, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, frame, number, settings

INITIAL_WINDOW_SIZE = 4
OK = bytes([0x88])  # `:status: 200` of the static table.


def frames(connection):
    """(kind, flags, stream, payload) of each frame that comes, without the preface."""
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


def http2(connection, request=lambda connection, stream: None, first=settings()):
    """A server that is right but for what it does to requests."""
    connection.sendall(first)
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


def garbage(connection):
    connection.sendall(os.urandom(100_000))
    connection.recv(65536)


def wait(connection):
    while connection.recv(65536):
        pass


def reset(connection, stream):
    connection.sendall(frame(RST_STREAM, stream, (2).to_bytes(4, "big")))


def refuse(connection, stream):
    connection.sendall(frame(RST_STREAM, stream, (7).to_bytes(4, "big")))


def go_away(connection):
    connection.sendall(settings() + frame(GOAWAY, 0, bytes(8)))
    wait(connection)


def flood(connection, content):
    """The same frames as fast as they are taken, while another thread takes what comes back."""
    threading.Thread(target=wait, args=(connection,), daemon=True).start()
    connection.sendall(settings())
    while True:
        connection.sendall(content)


def endless_body(connection, stream):
    connection.sendall(frame(HEADERS, stream, OK, END_HEADERS))
    while True:
        connection.sendall(frame(DATA, stream, bytes(16384)))


def endless_block(connection, stream):
    connection.sendall(frame(HEADERS, stream, OK))
    while True:
        connection.sendall(frame(CONTINUATION, stream, (b"\x10" + number(1, 7) + b"x" + number(1, 7) + b"y") * 1000))


def mail(connection):
    connection.sendall(b"220 mail.example.com ESMTP\r\n")
    wait(connection)


PLAIN = {"silence": wait, "closes": lambda connection: None, "plain text": mail}
SECURE = {
    "http/1.1": http1, "garbage": garbage, "silence after the handshake": wait, "goaway": go_away,
    "resets": lambda connection: http2(connection, reset), "refuses": lambda connection: http2(connection, refuse),
    "no answer": http2, "no window": lambda connection: http2(connection, first=settings((INITIAL_WINDOW_SIZE, 0))),
    "settings flood": lambda connection: flood(connection, settings((INITIAL_WINDOW_SIZE, 65535)) * 1000),
    "ping flood": lambda connection: flood(connection, frame(PING, 0, bytes(8)) * 1000),
    "endless body": lambda connection: http2(connection, endless_body),
    "endless block": lambda connection: http2(connection, endless_block),
    "certificate": http2,
}


def serve(kind, port, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["http/1.1"] if kind == "http/1.1" else ["h2"])

    def one(connection):
        try:
            if kind in PLAIN:
                PLAIN[kind](connection)
            else:
                SECURE[kind](context.wrap_socket(connection, server_side=True))
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


def certificate(folder, name="127.0.0.1", days=(-1, 30), authority=None):
    """A certificate for that address and its key in one file, and the file of the one that vouches for it: itself, or an authority."""
    now, key = datetime.now(timezone.utc), ec.generate_private_key(ec.SECP256R1())
    signer, issuer = (key, None) if authority is None else authority
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "apns.mayfly.test")])
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer.subject if issuer else subject)
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0])).not_valid_after(now + timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(name))]), critical=False)
            .sign(signer, hashes.SHA256()))
    path, vouching = folder / f"{made.serial_number:x}.pem", folder / f"{made.serial_number:x}-ca.pem"
    encoded = made.public_bytes(serialization.Encoding.PEM)
    path.write_bytes(encoded + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    vouching.write_bytes(issuer.public_bytes(serialization.Encoding.PEM) if issuer else encoded)
    return path, vouching, (key, made)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
