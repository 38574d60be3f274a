"""A headless Firefox whose push service is the simulator, driven through Marionette."""

import tempfile
from pathlib import Path

from marionette_driver.marionette import Marionette

from processes import free_port


class Firefox:
    """One process with a profile of its own, which is deleted with it. `port`: the simulator's `--browsers`."""

    def __init__(self, port):
        preferences = {
            "dom.push.serverURL": f"ws://127.0.0.1:{port}/", "dom.push.connection.enabled": True,
            "dom.push.testing.allowInsecureServerURL": True, "dom.push.testing.ignorePermission": True,
            "permissions.default.desktop-notification": 1, "alerts.useSystemBackend": False}
        self.folder = tempfile.TemporaryDirectory(prefix="mayfly-firefox-")
        # Marionette deletes an existing file of this name. It must never be a device such as /dev/null.
        log = Path(self.folder.name) / "firefox.log"
        self.driver = Marionette(
            host="127.0.0.1", port=free_port(), bin="/usr/bin/firefox-esr", headless=True, prefs=preferences, gecko_log=str(log))
        self.driver.start_session()
        self.driver.timeout.script = 30

    def open(self, url):
        self.driver.navigate(url)

    def run(self, script, *arguments):
        """The value of an async function's body. Raises AssertionError if it throws."""
        done, value = self.driver.execute_async_script(
            f"const done = arguments[arguments.length - 1]; (async (...given) => {{ {script} }})(...arguments).then("
            "value => done([true, value]), error => done([false, String(error)]));", script_args=arguments)
        assert done, value
        return value

    def close(self):
        self.driver.quit()
        # Its end deletes the profile, which fails when Python itself ends.
        self.driver = None
        self.folder.cleanup()
