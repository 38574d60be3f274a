"""Requests a second of the HTTP engine and of nginx: the same constant answer, with and without idle connections."""

import socket
import ssl

import load
from hold import Holder
from page import Aim, Section, Series
from processes import BODY, Engine, Invalid, Nginx, folder, throwaway_keys

IDLE = 5_000


def run(rounds, seconds, note):
    section = Section("The engine against nginx")
    section.text(f"""
        `mayfly-bench engine` is the HTTP server that the broker stands on, with a handler that gives a constant. nginx gives the same {len(BODY)} bytes by `return 200`: one
        worker, no access log. Both run on one core, the load (`wrk -t1 -c{load.CONNECTIONS}`, keep-alive) on the other; for HTTP/2, `h2load -t1 -c{load.CONNECTIONS} -m32`. TLS uses the same ECDSA P-256
        certificate for both. Each server runs twice: once with no other connection and once with {IDLE:,} that have sent one request and stay open and silent;
        all four are measured in turn in each round. CPU is the server's own, user and kernel, by `/proc`; requests a CPU second hardly depend on what else the machine does. Where a server uses
        much less than its core, load or machine were the limit.
        """)
    state = folder("engine-keys")
    throwaway_keys(state)
    certificate = state / "keys/simulator.pem"
    for name, tls, measure in (
        ("plain, HTTP/1.1", None, load.wrk),
        ("TLS, HTTP/1.1", certificate, lambda server, seconds: load.wrk(server, seconds, tls=True)),
        ("TLS, HTTP/2", certificate, load.h2load),
    ):
        note(f"engine: {name}")
        _kind(section, name, tls, measure, rounds, seconds)
    return section


def _kind(section, name, certificate, measure, rounds, seconds):
    servers = {
        (who, idle): make(f"{who}-{'idle' if idle else 'alone'}", certificate)
        for idle in (False, True) for who, make in (("Mayfly", Engine), ("nginx", Nginx))
    }
    holders = []
    try:
        if certificate:
            spoken = {who: _handshake(servers[who, False].port, "2" in name) for who in ("Mayfly", "nginx")}
            if measure is load.h2load and spoken["Mayfly"][2] != "h2":
                section.text(f"**{name}**: not measured, the engine does not speak it.")
                return
            if spoken["Mayfly"] != spoken["nginx"]:
                raise Invalid(f"the two do not speak the same: {spoken}")
            name = f"{name} ({spoken['Mayfly'][0].replace('v', ' ')}, {spoken['Mayfly'][1]})"
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

    section.parts.append(f"**{name}**")
    told = {False: "no idle connections", True: f"{IDLE:,} idle connections"}
    used = {key: Series(a * b / 1e6 for a, b in zip(rate[key].values, cpu[key].values)) for key in servers}
    section.table(
        ["", "requests a second", "CPU µs a request", "of its core"],
        [[f"{who}, {told[idle]}", rate[who, idle], cpu[who, idle], used[who, idle]] for who, idle in servers])
    compared = [(f"Mayfly of nginx, {told[idle]}", ("Mayfly", idle), ("nginx", idle)) for idle in told]
    compared += [(f"{who}, {told[True]} of none", (who, True), (who, False)) for who in ("Mayfly", "nginx")]
    section.table(
        ["ratio", "requests a second", "requests a CPU second"],
        [[words, rate[mine].over(rate[other]), cpu[other].over(cpu[mine])] for words, mine, other in compared])
    section.disturbance(others)
    short = name.partition(" (")[0]
    section.aims.append(Aim(
        f"engine with {IDLE:,} idle connections, of its rate without, {short}", 0.95, rate["Mayfly", True].over(rate["Mayfly", False])))
    section.aims.append(Aim(
        f"engine's rate, of nginx's with a static answer, {short}", 1, rate["Mayfly", False].over(rate["nginx", False])))
    section.aims.append(Aim(f"the same by requests a CPU second, {short}", 1, cpu["nginx", False].over(cpu["Mayfly", False])))


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
