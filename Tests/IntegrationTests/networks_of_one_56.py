"""Run by test_shares_engine.py in a network namespace of its own, where any address of one /32 is this machine: connections from 256 /64
networks of one /56, with a bystander beside them. Prints what came of them as JSON."""

import json
import resource
import socket
import sys
import time

ASK = b"GET /api/room HTTP/1.1\r\nHost: a\r\n\r\n"
IPV6_FREEBIND = 78
GREEDY, SIBLING, OTHER = "2001:db8:1:1%02x::1", "2001:db8:1:2%02x::1", "2001:db8:2:1%02x::1"


def connect(port, source):
    connection = socket.socket(socket.AF_INET6)
    connection.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
    connection.bind((source, 0))
    connection.settimeout(5)
    connection.connect(("::1", port))
    return connection


def status(connection):
    """Of an answer to a request; None if the broker ends the connection."""
    try:
        connection.sendall(ASK)
        answer = connection.recv(4_096)
    except OSError:
        return None
    return int(answer[9:12]) if answer else None


def main(port, most):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found, kept = {"greedy": 0, "refused": 0, "siblings": 0, "others": [], "slowest": 0.0}, []
    for number in range(most):
        connection = connect(port, GREEDY % (number % 256))
        answer = status(connection)
        found["greedy"] += answer == 401
        found["refused"] += answer in (None, 429)
        kept.append(connection)
        if number % 50 == 0:
            begun = time.monotonic()
            with connect(port, OTHER % (number % 256)) as other:
                found["others"].append(status(other))
            found["slowest"] = max(found["slowest"], time.monotonic() - begun)
    for number in range(most):
        connection = connect(port, SIBLING % (number % 256))
        found["siblings"] += status(connection) == 401
        kept.append(connection)
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
