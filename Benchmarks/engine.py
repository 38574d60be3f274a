"""Requests a second of the HTTP engine and of nginx: the same constant answer, with and without idle connections."""

import socket
import ssl

import load
from hold import Holder
from machine import size
from page import Aim, Section, Series
from processes import BODY, Engine, Invalid, Nginx, folder, throwaway_keys

IDLE = size(5_000, 500)


def run(rounds, seconds, note):
    section = Section("The engine against nginx")
    section.text(f"""
        Both answer with the same {len(BODY)} bytes on one core, nginx with one worker, to `wrk -t1 -c{load.CONNECTIONS}` or, for HTTP/2,
        `h2load -t1 -c{load.CONNECTIONS} -m32`. Idle connections have sent one request. ÷ is Mayfly's figure over nginx's.
        """)
    state = folder("engine-keys")
    throwaway_keys(state)
    certificate = state / "keys/simulator.pem"
    rows = []
    for name, tls, measure in (
        ("plain HTTP/1.1", None, load.wrk),
        ("TLS HTTP/1.1", certificate, lambda server, seconds: load.wrk(server, seconds, tls=True)),
        ("TLS HTTP/2", certificate, load.h2load),
    ):
        note(f"engine: {name}")
        rows += _kind(section, name, tls, measure, rounds, seconds)
    head = ["", "Mayfly, requests a second", "nginx", "÷", "Mayfly, CPU µs a request", "nginx", "requests a CPU second, ÷"]
    section.table(head, rows)
    return section


def _kind(section, name, certificate, measure, rounds, seconds):
    """Rows of the table: without idle connections, and with them."""
    servers = {
        (who, idle): make(f"{who}-{'idle' if idle else 'alone'}", certificate)
        for idle in (False, True) for who, make in (("Mayfly", Engine), ("nginx", Nginx))
    }
    holders = []
    try:
        if certificate:
            spoken = {who: _handshake(servers[who, False].port, "2" in name) for who in ("Mayfly", "nginx")}
            if spoken["Mayfly"] != spoken["nginx"]:
                raise Invalid(f"the two do not speak the same: {spoken}")
        for (who, idle), server in servers.items():
            if idle:
                holders.append(Holder("idle", server.port, IDLE, tls=bool(certificate)))
        for holder in holders:
            holder.expect("held")
        rate = {key: Series() for key in servers}
        cpu = {key: Series() for key in servers}
        others = []
        for server in servers.values():
            load.valid(measure, server, 1)
        for _ in range(rounds):
            for key, server in servers.items():
                result = load.valid(measure, server, seconds)
                rate[key].add(result.rate)
                cpu[key].add(result.cpu_us)
                others.append(result.others)
    finally:
        for process in [*holders, *servers.values()]:
            process.stop()

    section.disturbance(others)
    section.aims.append(Aim(
        f"engine's rate with {IDLE:,} idle connections ÷ without, {name}", 0.95, rate["Mayfly", True].over(rate["Mayfly", False])))
    section.aims.append(Aim(
        f"engine's rate ÷ nginx's, {name}", 1, rate["Mayfly", False].over(rate["nginx", False])))
    section.aims.append(Aim(f"engine's requests a CPU second ÷ nginx's, {name}", 1, cpu["nginx", False].over(cpu["Mayfly", False])))
    told = {False: name, True: f"{name}, {IDLE:,} idle"}
    return [
        [told[idle], rate["Mayfly", idle], rate["nginx", idle], rate["Mayfly", idle].over(rate["nginx", idle]),
         cpu["Mayfly", idle], cpu["nginx", idle], cpu["nginx", idle].over(cpu["Mayfly", idle])] for idle in told]


def _handshake(port, http2):
    """Version, cipher and protocol that a client gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"] if http2 else ["http/1.1"])
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain, context.wrap_socket(plain) as secured:
            return secured.version(), secured.cipher()[0], secured.selected_alpn_protocol()
    except ssl.SSLError:
        return "", "", None
