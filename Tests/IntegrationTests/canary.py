"""Looks for a secret in files, in every form it may have been left behind in."""

import base64
import re
from collections import defaultdict
from pathlib import Path


def base64_forms(secret):
    """Both alphabets, at each of the three offsets, without the characters that also depend on neighbouring bytes."""
    for offset in range(3):
        padded = bytes(offset) + secret
        text = base64.b64encode(padded[:len(padded) - len(padded) % 3])[(0, 2, 3)[offset]:]
        yield text
        if (url := text.translate(bytes.maketrans(b"+/", b"-_"))) != text:
            yield url


def forms(secret):
    """Raw, hexadecimal and base64 forms of at least eight bytes."""
    found = {secret, secret.hex().encode(), secret.hex().upper().encode(), *base64_forms(secret)}
    return {form for form in found if len(form) >= 8}


def subscription_secrets(subscription):
    """(name, values) of what is secret in `PushSubscription.toJSON()`. Of the endpoint that is its last part, which others contain."""
    path, keys = subscription["endpoint"].rsplit("/", 1)[1], subscription["keys"]
    is_hex = re.fullmatch("(?:[0-9a-f]{2})+", path)
    yield "endpoint", [path, *([bytes.fromhex(path)] if is_hex else [])]
    for name in ("p256dh", "auth"):
        yield name, [keys[name], base64.urlsafe_b64decode(keys[name] + "=" * (-len(keys[name]) % 4))]


class Canaries:
    """Named secrets, each as its bytes and, if it is written differently, as text."""

    def __init__(self):
        self.forms = {}

    def add(self, name, *values):
        for value in values:
            for form in forms(value if isinstance(value, bytes) else value.encode()):
                self.forms[form] = name

    def add_subscription(self, subscription):
        for name, values in subscription_secrets(subscription):
            self.add(name, *values)

    def in_bytes(self, data):
        return sorted({name for form, name in self.forms.items() if form in data})

    def in_files(self, *folders):
        """`name in file` for each secret found in a file's content or name; symbolic links are not followed."""
        found = []
        for folder in folders:
            for path in sorted(Path(folder).rglob("*")):
                found += [f"{name} in the name of {path}" for name in self.in_bytes(bytes(path.relative_to(folder)))]
                if path.is_file() and not path.is_symlink():
                    try:
                        data = path.read_bytes()
                    except FileNotFoundError:
                        continue
                    found += [f"{name} in {path}" for name in self.in_bytes(data)]
        return found


def search(contents, canaries):
    """The names of the canaries that are in any of these bytes, in any of their forms. Faster than `in_bytes` for many canaries."""
    head = 8
    by_head, found = defaultdict(list), set()
    for form, name in canaries.forms.items():
        by_head[form[:head]].append((form, name))
    heads = by_head.get
    for content in contents:
        for at in range(len(content) - head + 1):
            for form, name in heads(content[at:at + head], ()):
                if content.startswith(form, at):
                    found.add(name)
    return sorted(found)


class Given:
    """The push tokens and subscriptions that a whole run of tests gave to a broker, however many: found by their first bytes, in whatever form
    they are printed."""

    HEAD = 8
    RUNS = [
        (re.compile(rb"[0-9A-Fa-f]{16,}"), 2, lambda run: bytes.fromhex(run[:len(run) & ~1].decode())),
        (re.compile(rb"[A-Za-z0-9+/_-]{11,}"), 4, lambda run: base64.b64decode(run[:len(run) & ~3].translate(bytes.maketrans(b"-_", b"+/")))),
        # As a programming language shows an array.
        (re.compile(rb"[0-9]{1,3}(?:, ?[0-9]{1,3}){7,}"), 1, lambda run: bytes(int(number) & 255 for number in run.split(b","))),
    ]

    def __init__(self):
        self.heads = set()

    def add(self, token):
        """Adds a hexadecimal token. Tokens of few different bytes are ignored, since they occur by chance."""
        try:
            value = bytes.fromhex(token)
        except (TypeError, ValueError):
            return
        self._add(value)

    def _add(self, value):
        if len(set(value)) > self.HEAD:
            self.heads.add(value[:self.HEAD])

    def add_subscription(self, subscription):
        try:
            for _, values in subscription_secrets(subscription):
                for value in values:
                    self._add(value if isinstance(value, bytes) else value.encode())
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            return  # A malformed one, of a test of that.

    def is_in(self, data, depth=2):
        """Whether one of them is; base64 of a text with one in it counts as well."""
        if any(data[at:at + self.HEAD] in self.heads for at in range(len(data) - self.HEAD + 1)):
            return True
        return depth > 0 and any(
            self.is_in(decode(run[1][offset:]), depth - 1)
            for pattern, offsets, decode in self.RUNS for run in re.finditer(b"(" + pattern.pattern + b")", data) for offset in range(offsets))

    def in_files(self, *paths):
        """The names of the files that contain one. The token itself is never returned."""
        return [str(path) for path in map(Path, paths) if path.is_file() and self.is_in(path.read_bytes())]


given = Given()
