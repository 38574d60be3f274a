"""A headless Chromium, driven through the DevTools protocol."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from processes import clean_environment, eventually


class Browser:
    """One process with a profile of its own, which is deleted with it. It can't reach other machines."""

    FLAGS = [
        "--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage", "--mute-audio",
        "--host-resolver-rules=MAP far.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-port=0"]

    def __init__(self):
        self.profile = Path(tempfile.mkdtemp(prefix="mayfly-browser-"))
        flags = self.FLAGS + (["--no-sandbox"] if os.getuid() == 0 else [])
        self.process = subprocess.Popen(
            ["chromium", *flags, f"--user-data-dir={self.profile}", "about:blank"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment(HOME=self.profile))
        self.stack = contextlib.ExitStack()
        try:
            port = self.profile / "DevToolsActivePort"
            eventually(lambda: port.exists() and port.read_text().count("\n") >= 1, 30, what="the browser's start")
            number, path = port.read_text().split("\n")[:2]
            self.connection = self.stack.enter_context(connect(
                f"ws://127.0.0.1:{number}{path}", max_size=None, proxy=None, ping_interval=None, compression=None))
        except BaseException:
            self.close()
            raise
        self.numbers, self.answers, self.changed = itertools.count(1), {}, threading.Condition()
        self.sessions = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for raw in self.connection:
                message = json.loads(raw)
                if "id" in message:
                    with self.changed:
                        self.answers[message["id"]] = message
                        self.changed.notify_all()
                elif (page := self.sessions.get(message.get("sessionId"))) is not None:
                    page.happened(message["method"], message["params"], message["sessionId"])
        except ConnectionClosed:
            pass

    def send(self, method, session=None, **parameters):
        """Sends a command without waiting for its answer; returns its number."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        self.connection.send(json.dumps(message | ({"sessionId": session} if session else {})))
        return number

    def call(self, method, session=None, seconds=30, **parameters):
        number = self.send(method, session, **parameters)
        with self.changed:
            assert self.changed.wait_for(lambda: number in self.answers, seconds), f"no answer to {method}"
            answer = self.answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, url, **more):
        page = Page(self, **more)
        page.go(url)
        return page

    def close(self):
        if hasattr(self, "connection"):
            with contextlib.suppress(ConnectionClosed):
                self.send("Browser.close")
        else:
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self.stack.close()
        for _ in range(20):
            shutil.rmtree(self.profile, ignore_errors=True)
            if not self.profile.exists():
                break
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Page:
    """A tab with its workers. Records every console line and, with `listens`, every request. `storage`: another page whose stored data it shares."""

    def __init__(self, browser, width=1000, height=800, dark=False, still=False, storage=None, listens=True):
        self.browser = browser
        self.requests, self.complaints, self.workers = [], [], set()
        # A context of its own has no stored data.
        self.context = storage or browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        browser.sessions[self.session] = self
        self.domains = ("Runtime", "Log", "Network") if listens else ("Runtime", "Log")
        for domain in ("Page", *self.domains):
            self.call(f"{domain}.enable")
        self._follow(self.session)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        if still:
            features.append({"name": "prefers-reduced-motion", "value": "reduce"})
        self.call("Emulation.setEmulatedMedia", features=features)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def _follow(self, session):
        self.browser.send(
            "Target.setAutoAttach", session, autoAttach=True, waitForDebuggerOnStart=True, flatten=True)

    def happened(self, method, event, session):
        if method == "Target.attachedToTarget":
            worker = event["sessionId"]
            self.workers.add(worker)
            self.browser.sessions[worker] = self
            for domain in self.domains:
                self.browser.send(f"{domain}.enable", worker)
            self._follow(worker)
            self.browser.send("Runtime.runIfWaitingForDebugger", worker)
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(part.get("value", part.get("description"))) for part in event["args"]))
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")

    def go(self, url):
        """Loads a page, or reloads the same one."""
        self.value("document.documentElement.dataset.old = true")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && !document.documentElement.dataset.old", 30)

    def value(self, expression):
        """The value of a JavaScript expression on the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, expression, seconds=15):
        return eventually(lambda: self.value(expression), seconds, 0.05, f"{expression!r}")

    def text(self, selector="body"):
        return self.value(f"document.querySelector({json.dumps(selector)})?.innerText")

    KEYS = {"Tab": 9, "Enter": 13, " ": 32, "Escape": 27}

    def press(self, key, shift=False):
        text = {"Enter": "\r", " ": " "}.get(key)
        common = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": self.KEYS[key],
                  "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        shot = self.call("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
        for session in (self.session, *self.workers):
            self.browser.sessions.pop(session, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
