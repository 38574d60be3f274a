"""A network between broker and Apple that drops connections without a word: a process that forwards TCP. Each line on its standard input freezes
the connections that it has: they stay open, and nothing passes. New ones pass. It prints its port, and then how many it froze."""

import asyncio
import sys


class End(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, relay):
        self.relay, self.other, self.frozen, self.waiting = relay, None, False, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if self.frozen:
            return
        if self.other:
            self.other.transport.write(data)
        else:
            self.waiting += data

    def connection_lost(self, _):
        self.relay.ends.discard(self)
        if self.other and not self.frozen:
            self.other.transport.close()


class Relay:
    def __init__(self, upstream):
        self.upstream, self.ends, self.connecting = upstream, set(), set()

    def accept(self):
        near = End(self)
        task = asyncio.get_running_loop().create_task(self.connect(near))
        self.connecting.add(task)
        task.add_done_callback(self.connecting.discard)
        return near

    async def connect(self, near):
        _, far = await asyncio.get_running_loop().create_connection(lambda: End(self), "127.0.0.1", self.upstream)
        near.other, far.other = far, near
        self.ends |= {near, far}
        far.transport.write(near.waiting)

    def freeze(self):
        frozen, self.ends = self.ends, set()
        for end in frozen:
            end.frozen = True
        return len(frozen) // 2


async def main():
    relay = Relay(int(sys.argv[1]))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(relay.accept, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(relay.freeze(), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
