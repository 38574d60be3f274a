"""testssl.sh against the TLS listener."""

import json
import subprocess

import pytest

from listeners import Listeners

pytestmark = pytest.mark.campaign

# Findings of any certificate made for a test: it is self-signed, can't be revoked, and lives for a month.
OF_THE_TEST = ("cert_", "OCSP", "DNS_CAA", "certificate_transparency", "overall_grade", "scanTime", "engine_problem")


def test_nothing_weak(tmp_path):
    listeners = Listeners(["tls"])
    try:
        report = tmp_path / "report.json"
        subprocess.run(
            ["testssl", "--quiet", "--color", "0", "--warnings", "off", "--jsonfile", report, "-p", "-s", "-f", "-S", "-U",
             f"localhost:{listeners.broker('tls').port}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=240,
                 check=False)
        findings = json.loads(report.read_text())
    finally:
        listeners.close()
    found = {one["id"]: one["finding"] for one in findings}
    weak = [one for one in findings
            if one["severity"] in ("LOW", "MEDIUM", "HIGH", "CRITICAL", "WARN", "FATAL") and not one["id"].startswith(OF_THE_TEST)]
    assert not weak, weak
    for name in ("SSLv2", "SSLv3", "TLS1", "TLS1_1", "cipherlist_NULL", "cipherlist_aNULL", "cipherlist_EXPORT", "cipherlist_LOW"):
        assert "not offered" in found[name], (name, found[name])
    assert found["TLS1_2"] == "offered" and "offered" in found["TLS1_3"]
    for name in ("heartbleed", "CCS", "ticketbleed", "ROBOT", "secure_client_renego", "CRIME_TLS", "POODLE_SSL", "SWEET32",
        "FREAK", "DROWN",
                 "LOGJAM", "BEAST", "LUCKY13", "RC4"):
        assert name in found, f"testssl did not look at {name}"
