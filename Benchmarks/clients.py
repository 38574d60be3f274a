"""What else sends pushes from Python, to APNs or to browsers, run by the bench's own (Benchmarks/requirements.txt): one push, half a second of them, and then
as many under way as asked for until the seconds are over. Prints pushes, failures, seconds and CPU seconds as JSON.

clients.py NAME PORT STATE SECONDS STREAMS"""

import asyncio
import json
import logging
import ssl
import sys
import time
import uuid
from pathlib import Path

KEY_ID, TEAM_ID, TOPIC = "ABC123DEFG", "DEF123GHIJ", "com.example.app"
COLLAPSE_ID, LIFE, WARM_UP = "q1w2e3r4t5y6u7i8o9p0aa", 120, 0.5


def payload(number):
    return {"aps": {"alert": {"title": "Waiting", "body": "Your chat partner is waiting"}, "sound": "default"},
            "roomId": f"00000000-0000-4000-8000-{number % 4096:012x}"}


def device(number):
    return bytes((number % 4096 * 31 + at * 7) % 256 for at in range(32)).hex()


class Client:
    """`send` sends one push and returns whether it was accepted."""

    def __init__(self, port, state):
        self.port, self.authority, self.key = port, state / "keys/simulator-ca.pem", (state / "keys/apns.p8").read_text()

    def headers(self):
        """All that are the same for each push."""
        import jwt

        issued = jwt.encode({"iss": TEAM_ID, "iat": int(time.time())}, self.key, algorithm="ES256", headers={"kid": KEY_ID})
        return {"authorization": f"bearer {issued}", "apns-topic": TOPIC, "apns-push-type": "alert", "apns-priority": "10",
                "apns-collapse-id": COLLAPSE_ID}

    @staticmethod
    def own_headers():
        return {"apns-id": str(uuid.uuid4()), "apns-expiration": str(int(time.time()) + LIFE)}

    def measure(self, seconds, streams):
        async def lane(number, end, counts):
            while time.monotonic() < end:
                counts[await self.send(number)] += 1
                number += 1

        async def flood(seconds):
            counts, end = {True: 0, False: 0}, time.monotonic() + seconds
            await asyncio.gather(*(lane(number, end, counts) for number in range(streams)))
            return counts

        async def run():
            self.start()
            if not await self.send(0):
                raise SystemExit("the first push was refused")
            await flood(WARM_UP)
            start, cpu = time.monotonic(), time.process_time()
            return await flood(seconds), time.monotonic() - start, time.process_time() - cpu
        return asyncio.run(run())


class Aioapns(Client):
    def start(self):
        from aioapns import APNs, NotificationRequest, PushType
        from aioapns.connection import APNsProductionClientProtocol

        class Protocol(APNsProductionClientProtocol):
            APNS_SERVER, APNS_PORT = "localhost", self.port

        logging.disable(logging.WARNING)
        self.client = APNs(
            key=self.key, key_id=KEY_ID, team_id=TEAM_ID, topic=TOPIC, max_connections=1,
            ssl_context=ssl.create_default_context(cafile=self.authority))
        self.client.pool.protocol_class = Protocol
        self.request, self.alert = NotificationRequest, PushType.ALERT

    async def send(self, number):
        result = await self.client.send_notification(self.request(
            device_token=device(number), message=payload(number), priority=10, push_type=self.alert, time_to_live=LIFE,
            collapse_key=COLLAPSE_ID))
        return result.is_successful


class Httpx(Client):
    def start(self):
        import httpx

        self.client = httpx.AsyncClient(
            http1=False, http2=True, base_url=f"https://localhost:{self.port}", limits=httpx.Limits(max_connections=1), timeout=60,
            verify=ssl.create_default_context(cafile=self.authority), headers=self.headers())

    async def send(self, number):
        answer = await self.client.post(f"/3/device/{device(number)}", content=json.dumps(payload(number)), headers=self.own_headers())
        return answer.status_code == 200


class Pycurl(Client):
    """libcurl drives itself: no asyncio."""

    def measure(self, seconds, streams):
        import pycurl

        self.pycurl, self.common = pycurl, [f"{name}: {value}" for name, value in self.headers().items()]
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, 1)
        multi.setopt(pycurl.M_MAX_CONCURRENT_STREAMS, streams)
        self.flood(multi, 0, 1)
        self.flood(multi, WARM_UP, streams)
        start, cpu = time.monotonic(), time.process_time()
        return self.flood(multi, seconds, streams), time.monotonic() - start, time.process_time() - cpu

    def flood(self, multi, seconds, streams):
        counts, end, number = {True: 0, False: 0}, time.monotonic() + seconds, streams
        for lane in range(streams):
            multi.add_handle(self.prepare(self.handle(), lane))
        running = streams
        while running:
            multi.perform()
            _, done, failed = multi.info_read()
            for handle in [*done, *(handle for handle, *_ in failed)]:
                counts[handle.getinfo(self.pycurl.RESPONSE_CODE) == 200] += 1
                multi.remove_handle(handle)
                if time.monotonic() < end:
                    multi.add_handle(self.prepare(handle, number))
                    number += 1
                else:
                    running -= 1
            if running and not done:
                multi.select(1)
        return counts

    def handle(self):
        handle, curl = self.pycurl.Curl(), self.pycurl
        handle.setopt(curl.HTTP_VERSION, curl.CURL_HTTP_VERSION_2_0)
        handle.setopt(curl.PIPEWAIT, 1)
        handle.setopt(curl.CAINFO, str(self.authority))
        handle.setopt(curl.POST, 1)
        handle.setopt(curl.WRITEFUNCTION, lambda _: None)
        return handle

    def prepare(self, handle, number):
        handle.setopt(self.pycurl.URL, f"https://localhost:{self.port}/3/device/{device(number)}")
        handle.setopt(self.pycurl.HTTPHEADER, [*self.common, *(f"{name}: {value}" for name, value in self.own_headers().items())])
        handle.setopt(self.pycurl.POSTFIELDS, json.dumps(payload(number)))
        return handle


class Pywebpush(Client):
    """Its asynchronous sending on one aiohttp session. The VAPID token is signed once: `webpush_async` would sign one for each push."""

    def __init__(self, port, state):
        self.authority, self.key = state / "keys/simulator-ca.pem", state / "vapid.pem"
        self.subscriptions = json.loads((state / "subscriptions.json").read_text())

    def start(self):
        import aiohttp
        from py_vapid import Vapid02
        from pywebpush import WebPusher

        origin = "/".join(self.subscriptions[0]["endpoint"].split("/")[:3])
        claims = {"aud": origin, "exp": int(time.time()) + 12 * 3600, "sub": "mailto:ops@chat.example"}
        self.common = {**Vapid02.from_file(self.key).sign(claims), "urgency": "high", "topic": COLLAPSE_ID}
        context = ssl.create_default_context(cafile=self.authority)
        context.set_alpn_protocols(["http/1.1"])
        # It has no HTTP/2, so each push under way needs a connection.
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=0))
        self.pushers = [WebPusher(one, aiohttp_session=session) for one in self.subscriptions]
        self.timeout = aiohttp.ClientTimeout(60)

    async def send(self, number):
        shown = {"title": "Your chat partner is waiting", "tag": COLLAPSE_ID, "navigate": "https://app.example/",
                 "data": {"roomId": COLLAPSE_ID, "template": "peer_waiting"}}
        text = json.dumps({"mutable": True, "web_push": 8030, "notification": shown})
        pusher = self.pushers[number % len(self.pushers)]
        answer = await pusher.send_async(text, self.common, ttl=LIFE, timeout=self.timeout)
        return answer.status == 201


def main(name, port, state, seconds, streams):
    counts, took, cpu = CLIENTS[name](int(port), Path(state)).measure(float(seconds), int(streams))
    print(json.dumps({"pushes": counts[True], "failed": counts[False], "seconds": took, "cpuSeconds": cpu}))


APNS = {"aioapns": Aioapns, "httpx": Httpx, "pycurl": Pycurl}
CLIENTS = APNS | {"pywebpush": Pywebpush}

if __name__ == "__main__":
    main(*sys.argv[1:])
