"""Looks for a secret in files, in every form it may have been left behind in."""

import base64
from pathlib import Path


def forms(secret):
    """Raw, hexadecimal and base64 forms. Base64 at each of the three offsets, without the characters that neighbours share."""
    found = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    for offset in range(3):
        padded = bytes(offset) + secret
        usable = len(padded) - len(padded) % 3
        text = base64.b64encode(padded[:usable])[-(-offset * 8 // 6):] if offset else base64.b64encode(padded[:usable])
        found |= {text, text.replace(b"+", b"-").replace(b"/", b"_")}
    return {form for form in found if len(form) >= 8}


class Canaries:
    """Named secrets, each given as the bytes it stands for and, if that differs, the text it was written as."""

    def __init__(self):
        self.forms = {}

    def add(self, name, *values):
        for value in values:
            for form in forms(value if isinstance(value, bytes) else value.encode()):
                self.forms[form] = name

    def in_bytes(self, data):
        return sorted({name for form, name in self.forms.items() if form in data})

    def in_files(self, *folders):
        """`name in file` for each secret found; symbolic links are not followed."""
        found = []
        for folder in folders:
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file() and not path.is_symlink():
                    try:
                        data = path.read_bytes()
                    except FileNotFoundError:
                        continue
                    found += [f"{name} in {path}" for name in self.in_bytes(data)]
        return found
