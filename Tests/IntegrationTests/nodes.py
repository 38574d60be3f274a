"""A deployment of several nodes on one PostgreSQL schema, with a simulator. One node serves, the others stand by."""

import shutil

from certificates import Authority, openssl
from processes import Broker, Simulator, State, eventually, free_port, mayfly

def issue(authority, name, address="127.0.0.1"):
    """One PEM file with a certificate for an address and its key."""
    folder = authority.folder
    request, key, path, both = (folder / f"{name}.{end}" for end in ("csr", "key", "crt", "pem"))
    extensions = folder / "address.ext"
    extensions.write_text(f"subjectAltName=IP:{address}\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    openssl("x509", "-req", "-in", request, "-CA", authority.path, "-CAkey", authority.key, "-CAcreateserial", "-days", 30, "-out", path,
            "-extfile", extensions)
    both.write_bytes(path.read_bytes() + key.read_bytes())
    both.chmod(0o600)
    return both


class Node(Broker):
    ready_within = 30.0

    def __init__(self, deployment, name, **changes):
        self.folder = deployment.state.parent / name
        shutil.copytree(deployment.state.folder, self.folder)
        self.node_port = free_port()
        super().__init__(
            deployment.state, deployment.simulator.port, database=deployment.schema.uri, node=name,
            node_listen=f"127.0.0.1:{self.node_port}", node_certificate=issue(deployment.authority, name),
            node_ca=deployment.authority.path, **changes)
        self.options["state"] = self.folder
        self.name = name

    def stand_by(self, **environment):
        """Starts it, and waits until another node's keys have arrived."""
        self.start(wait=False, **environment)
        eventually(lambda: self.schema_report() and self.schema_report()[0] > 0, 20, what=f"{self.name} standing by")
        return self

    def schema_report(self):
        rows = self.deployment_schema.run("SELECT steps, ledger_size FROM member WHERE name = %s AND seen > %s", self.name, self.started_ms)
        return rows[0] if rows else None

    def start(self, *arguments, **environment):
        self.started_ms = self.deployment_schema.run("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")[0][0]
        return super().start(*arguments, **environment)

    @property
    def is_serving(self):
        return self.running and self.is_ready()


class Deployment:
    def __init__(self, names="ab", server=None, **changes):
        self.state = State(postgres=server or True, wrapped=False)
        self.schema = self.state.schema
        self.changes = changes
        self.simulator = Simulator(self.state)
        self.authority = Authority(self.state.prints, "nodes")
        self.nodes = {name: self.node(name, **changes) for name in names}

    def node(self, name, **changes):
        node = Node(self, name, **changes)
        node.deployment_schema = self.schema
        return node

    def __getitem__(self, name):
        return self.nodes[name]

    @property
    def serving(self):
        """The node that serves, or None."""
        return next((node for node in self.nodes.values() if node.is_serving), None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes.values():
            node.kill()
        self.simulator.kill()
        self.state.remove()
