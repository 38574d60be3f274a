"""Certificates for the public listener, made with openssl."""

import ssl
import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Certificate:
    """A self-signed certificate for localhost on an ECDSA P-256 key, valid for `days` days: long enough for no warning."""

    def __init__(self, folder, name="server", days=90):
        self.path, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key, "-out",
            self.path,
                "-days", days, "-subj", f"/CN={name}.mayfly.test", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.key.chmod(0o600)

    @property
    def flags(self):
        return {"tls_certificate": self.path, "tls_key": self.key}

    @property
    def der(self):
        return ssl.PEM_cert_to_DER_cert(self.path.read_text())

    def context(self, *protocols):
        """For a client that trusts this certificate only."""
        context = ssl.create_default_context(cafile=self.path)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context


class Authority:
    """An authority of one's own, and certificates from it."""

    def __init__(self, folder, name, days=90):
        self.folder, self.path, self.key = folder, folder / f"{name}.pem", folder / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key,
                "-out", self.path, "-days", days, "-subj", f"/CN={name}.mayfly.test")

    def issue(self, name, days=90):
        path, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request,
                "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", request, "-CA", self.path, "-CAkey", self.key, "-CAcreateserial", "-days", days, "-out", path)
        return path, key
