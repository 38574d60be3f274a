"""Files of a log that readers could judge differently, each with the verdict that audit/log-format.md gives it: a code, or None for good."""

import base64

import logs

MIB = 1 << 20
PLAIN = dict(life="604800", hour="600", day="3600", seals="4", templates='{"peer_waiting":{}}', more="")


def policy(**more):
    """A policy's text with these spellings in place."""
    part = PLAIN | more
    return (f'{{"ledger":{{"batchSeals":{part["seals"]},"daySeconds":{part["day"]},"hourSeconds":{part["hour"]}}},'
            f'"limits":{{"roomLifeSeconds":{{"max":{part["life"]},"min":10}}}},"templates":{part["templates"]}{part["more"]}}}').encode()


def unread(value):
    """A policy with this value where nobody looks."""
    return policy(more=b',"other":'.decode() + value)


def unread_bytes(value):
    return policy(more=',"other":"@"').replace(b"@", value)


def deep(depth):
    """Of `depth` levels, with that of the policy."""
    return unread("[" * (depth - 1) + "]" * (depth - 1))


def sized(count):
    return policy() + b" " * (count - len(policy()))


GOOD_POLICIES = {
    "plain": policy(),
    "spaces, tabs, both line ends": policy().replace(b",", b" ,\r\n\t").replace(b":", b" : "),
    "no limits, no templates, no ledger": b"{}",
    "an empty object of limits": b'{"limits":{},"templates":{}}',
    "the longest life": policy(life="9007199254740991"),
    "the limits of the timing": policy(hour="3600", day="86400", seals="10000"),
    "odd numbers, unread": unread("[1.5,-0,0.0,-1E-7,1e400,604800.0,1e5," + "9" * 5000 + "," + "0." + "1" * 5000 + "]"),
    "null, unread": unread("[null,true,false,{},[]]"),
    "33 levels": deep(33),
    "33 levels of objects": unread('{"x":' * 31 + "{}" + "}" * 31),
    "brackets in a text": unread('"' + "[{" * 500 + '\\"' + "[" * 500 + '"'),
    "escapes in the names that are read": policy().replace(b"limits", b"\\u006cimits").replace(b"max", b"m\\u0061x").replace(b"hour", b"\\u0068our"),
    "an escaped template": policy(templates='{"\\u0070eer_waiting":{}}'),
    "all escapes": unread(r'"\"\\\/\b\f\n\r\t\u0000\u001f\uFFFF\u00e9"'),
    "a surrogate pair": unread(r'"\ud83d\ude00 \uD83D\uDE00"'),
    "a surrogate pair after an escaped backslash": unread(r'"\\\ud83d\ude00"'),
    "an escaped backslash before what only looks like half a pair": unread(r'"\\ud83d"'),
    "emoji, no characters, separators of lines, DEL": unread('"😀\uffff\ufffe\u2028\u2029\u0085\x7f\ufeff"'),
    "names that only look alike": policy(templates='{"peer_waiting":{},"\u00e9":{},"e\u0301":{}}'),
    "names of JavaScript": policy(templates='{"peer_waiting":{},"__proto__":{},"constructor":{},"toString":1}', more=',"__proto__":{"limits":5}'),
    "an empty name": policy(templates='{"peer_waiting":{},"":{}}'),
    "one name in two objects": unread('[{"x":1},{"x":1,"y":{"x":1}}]'),
    "a mebibyte": sized(MIB),
    "a mebibyte of names": policy(templates='{"peer_waiting":{},' + ",".join(f'"{number:x}":0' for number in range(90_000)) + "}"),
    "a mebibyte of text": unread('"' + "\\\\" * 500_000 + '"'),
    "templates of any kind": policy(templates='{"peer_waiting":null,"x":5,"y":[]}'),
}

# Each is put in place of one number that is read.
BAD_NUMBERS = ("604800.0", "1e3", "1E+3", "6048e-1", "-600", "0", "-0", "0600", "+600", "0x258", "600.", ".6", "1e", "NaN", "Infinity", "-Infinity", '"600"',
               "null", "true", "[600]", "{}", "9007199254740992", "9" * 20, "9" * 5000, "1" + "0" * 400, "٦٠٠", "600_0", "6 0 0", "")

# Each is put in place of an unread value.
BAD_VALUES = {
    "NaN": "NaN", "Infinity": "-Infinity", "a leading zero": "007", "a lone minus": "-", "a plus": "+1", "no digit after the point": "1.", "no digit before it": ".5",
    "no digit in the exponent": "1e+", "a word cut": "tru", "a word of another language": "None", "an upper-case word": "TRUE", "single quotes": "'x'",
    "a comma too many": "[1,]", "a comma in an object": '{"x":1,}', "two commas": "[1,,2]", "no comma": "[1 2]", "a name without quotes": "{x:1}", "a name that is a number": "{1:1}",
    "no colon": '{"x" 1}', "an open text": '"', "an open array": "[", "another bracket": "[}", "a comment": "/* */1", "a no-break space": "\u00a01", "a byte order mark inside": "\ufeff1",
    "a form feed": "\f1", "a vertical tab": "\v1", "a newline in a text": '"\n"', "a tab in a text": '"\t"', "a zero in a text": '"\0"', "an unknown escape": r'"\x41"',
    "an escaped quote of another kind": r'''"\'"''', "an upper-case escape": r'"\U0041"', "three digits": r'"\u12"', "no hexadecimal digits": r'"\u12g4"', "a sign in an escape": r'"\u+123"',
    "a space in an escape": r'"\u 123"', "a high surrogate": r'"\ud83d"', "a low surrogate": r'"\ude00"', "two high surrogates": r'"\ud83d\ud83d\ude00"', "a pair the wrong way round": r'"\ude00\ud83d"',
    "half a pair before an escape": r'"\ud83d\n"', "half a pair before a letter": r'"\ud83dx"', "half a pair in a name": r'{"\ud83d":1}', "half a pair in upper case": r'"\uD83D"',
    "half a pair after an escaped backslash": r'"\\\ud83d"', "a half in each of two members": r'{"x":"\ud83d","y":"\ude00"}',
    "a name twice": '{"x":1,"x":1}', "a name twice, once escaped": r'{"x":1,"\u0078":1}', "a name twice, deep": '[{"y":[{"x":1,"z":2,"x":3}]}]', "an empty name twice": '{"":1,"":2}',
    "__proto__ twice": '{"__proto__":1,"__proto__":2}', "half a pair behind a second name": r'{"x":"\ud83d","x":1}',
}

BAD_BYTES = {
    "no UTF-8": b"\xff", "Latin-1": b"\xe9", "a cut character": b"\xe2\x82", "an overlong slash": b"\xc0\xaf", "an encoded surrogate": b"\xed\xa0\x80",
    "an encoded pair of surrogates": b"\xed\xa0\xbd\xed\xb8\x80", "beyond Unicode": b"\xf4\x90\x80\x80", "a lone continuation": b"\x80",
}

BAD_POLICIES = {
    "nothing": b"", "a space": b" ", "cut": policy()[:-1], "a byte order mark": b"\xef\xbb\xbf" + policy(), "UTF-16": policy().decode().encode("utf-16"),
    "UTF-32": policy().decode().encode("utf-32-le"), "two": policy() + policy(), "a byte after it": policy() + b"x", "a zero after it": policy() + b"\0", "a bracket after it": policy() + b"}",
    "an array": b"[" + policy() + b"]", "a text": b'"x"', "a number": b"5", "null": b"null", "an empty array": b"[]",
    **{f"limits {value}": b'{"limits":' + value.encode() + b"}" for value in ("null", "[]", '"x"', "5", "true")},
    **{f"templates {value}": b'{"templates":' + value.encode() + b"}" for value in ("null", "[]", '"x"', "5")},
    **{f"a room's life {value}": b'{"limits":{"roomLifeSeconds":' + value.encode() + b"}}" for value in ("null", "[]", "{}", "5", '{"max":null}', '["max"]')},
    **{f"{name} {value}": f'{{"limits":{{"{name}":{value}}}}}'.encode() for name in ("deviceLifeSeconds", "activityLifeSeconds", "sessionLifeSeconds")
       for value in ("null", "0", "5.0", '"5"', "{}", "9007199254740992")},
    **{f"a life of {number:.30}": policy(life=number) for number in BAD_NUMBERS},
    **{f"an hour of {number:.30}": policy(hour=number) for number in BAD_NUMBERS},
    **{f"a day of {number:.30}": policy(day=number) for number in BAD_NUMBERS},
    **{f"a batch of {number:.30}": policy(seals=number) for number in BAD_NUMBERS},
    "an hour too long": policy(hour="3601", day="3601"), "a day too long": policy(hour="1", day="86401"), "a batch too large": policy(seals="10001"), "an uneven day": policy(day="3601"),
    **{f"{what}, unread": unread(value) for what, value in BAD_VALUES.items()},
    **{f"{what}, unread": unread_bytes(value) for what, value in BAD_BYTES.items()},
    "limits twice": policy(more=',"limits":{}'), "limits twice, once escaped": policy(more=r',"\u006cimits":{}'), "templates twice": policy(more=',"templates":{"peer_waiting":{}}'),
    "a ledger twice": policy(more=',"ledger":{"batchSeals":4,"daySeconds":3600,"hourSeconds":600}'), "a template twice": policy(templates='{"peer_waiting":{},"peer_waiting":{}}'),
    "an hour twice": policy(hour='600,"hourSeconds":600'),
    **{f"{depth} levels": deep(depth) for depth in (34, 64, 500, 990, 1_000, 1_001, 5_000, 100_000)},
    "34 levels of objects": unread('{"x":' * 32 + "{}" + "}" * 32), "an open nest": unread("[" * 100_000),
    "34 levels in the middle of a mebibyte": unread('["' + "x" * 500_000 + '",' + "[" * 32 + "]" * 32 + ',"' + "x" * 500_000 + '"]'),
    "a mebibyte and a byte": sized(MIB + 1), "two mebibytes": sized(2 * MIB), "16 MiB": sized(16 * MIB),
}

POLICIES = {what: (None, content) for what, content in GOOD_POLICIES.items()} | {what: ("damaged", content) for what, content in BAD_POLICIES.items()}

# Named by policy.loaded, which sets no timing: `ledger` isn't read then.
LOADED = {
    **{f"a ledger {value}": (None, b'{"ledger":' + value.encode() + b"}") for value in ("null", "[]", "{}", '{"hourSeconds":1e5}', '"x"')},
    "a life with a fraction": ("damaged", policy(life="604800.0")),
    "a ledger twice": ("damaged", b'{"ledger":1,"ledger":1}'),
    "half a pair in the ledger": ("damaged", rb'{"ledger":"\ud83d"}'),
}


def _line(note):
    return note.index(b"\n\n") + 2


def _in_text(old, new):
    """The change in the text, signed anew."""
    return lambda text, key: logs.note(text.replace(old, new), key)


def _whole(change):
    return lambda text, key: change(logs.note(text, key))


def _stranger(line):
    """A further line of somebody else."""
    return _whole(lambda note: note + (line if isinstance(line, bytes) else line.encode()))


def _spare_bits(note):
    """The same signature in base64 with other spare bits."""
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    end = len(note) - len(note.rstrip(b"=\n"))
    assert end > 1
    place = len(note) - end - 1
    return note[:place] + letters[letters.index(note[place:place + 1]) + 1:][:1] + note[place + 1:]


ROOT = base64.b64encode
STRANGER = logs.Key("witness.test/stranger", b"s" * 32, 4)


def _broken_twin(note):
    name, data = note[_line(note):].decode().split(" ")[1:]
    raw = bytearray(base64.b64decode(data))
    raw[-1] ^= 1
    return note + f"— {name} {base64.b64encode(bytes(raw)).decode()}\n".encode()


def _size(spelling):
    return lambda text, key: logs.note(text.split(b"\n")[0] + b"\n" + spelling.encode() + b"\n" + text.split(b"\n")[2] + b"\n", key)


def _root(change):
    return lambda text, key: logs.note(text.split(b"\n")[0] + b"\n" + text.split(b"\n")[1] + b"\n" + change(text.split(b"\n")[2]) + b"\n", key)


# How a checkpoint is made from its text and the log's key.
CHECKPOINTS = {
    "plain": (None, _whole(lambda note: note)),
    "the signature twice": (None, _whole(lambda note: note + note[_line(note):])),
    "64 signatures": (None, lambda text, key: logs.note(text, key, *[logs.Key(f"w{number}", bytes([number]) * 32) for number in range(63)])),
    "a line of a stranger": (None, _stranger(f"— witness.test/x {'A' * 12}\n")),
    "a name with an invisible space": (None, _stranger(f"— x\u200bx\ufeff\u180e {'A' * 12}\n")),
    "a later key of the same name": (None, lambda text, key: logs.note(text, key, logs.Key(seed=b"o" * 32))),
} | {what: ("signature", change) for what, change in {
    "nothing": _whole(lambda note: b""), "a newline": _whole(lambda note: b"\n"), "zeros": _whole(lambda note: bytes(len(note))),
    **{f"cut after {share} of 8": _whole(lambda note, share=share: note[:len(note) * share // 8]) for share in range(1, 8)},
    "no newline at the end": _whole(lambda note: note[:-1]), "two newlines at the end": _whole(lambda note: note + b"\n"), "a newline before": _whole(lambda note: b"\n" + note),
    "a byte order mark": _whole(lambda note: b"\xef\xbb\xbf" + note), "carriage returns": _whole(lambda note: note.replace(b"\n", b"\r\n")),
    "carriage returns, signed": lambda text, key: logs.note(text.replace(b"\n", b"\r\n"), key), "a byte after it": _whole(lambda note: note + b"x"), "a zero after it": _whole(lambda note: note + b"\0"),
    "UTF-16": _whole(lambda note: note.decode().encode("utf-16")), "text after the signatures": _whole(lambda note: note + b"\nmore\n"),
    "an extension line": lambda text, key: logs.note(text + b"more\n", key), "a tab": _in_text(b"\n", b"\t\n"), "a space at the end of a line": _in_text(b"\n", b" \n"),
    **{f"a size of {size:.25}": _size(size) for size in ("01", "+1", " 1", "1.0", "1e0", "0x1", "-0", "", "9223372036854775808", "18446744073709551617", "9" * 400, "١", "1_0", "1,0")},
    "a root without padding": _root(lambda root: root.rstrip(b"=")), "a root with spare bits": _root(lambda root: _spare_bits(root + b"\n")[:-1]),
    "a root of 31 bytes": _root(lambda root: base64.b64encode(base64.b64decode(root)[:31])), "a root of 33 bytes": _root(lambda root: base64.b64encode(base64.b64decode(root) + b"x")),
    "a root in another alphabet": _root(lambda root: b"-_" + root[2:]), "a root with a space": _root(lambda root: root[:20] + b" " + root[20:]), "a root in hexadecimal": _root(lambda root: base64.b64decode(root).hex().encode()),
    "another origin": _in_text(b"mayfly.test/log", b"mayfly.test/other"), "an origin in upper case": _in_text(b"mayfly", b"Mayfly"), "no origin": _in_text(b"mayfly.test/log", b""),
    "a hyphen for a dash": _whole(lambda note: note.replace("—".encode(), b"-")), "two spaces": _whole(lambda note: note.replace("— ".encode(), "—  ".encode())),
    "a space after it": _whole(lambda note: note[:-1] + b" \n"), "a word after it": _whole(lambda note: note[:-1] + b" x\n"), "no signature": _whole(lambda note: note[:_line(note)]),
    "another key": lambda text, key: logs.note(text, logs.Key(seed=b"o" * 32)), "only a stranger": lambda text, key: logs.note(text, STRANGER), "spare bits": _whole(_spare_bits),
    "no padding": _whole(lambda note: note.rstrip(b"=\n") + b"\n"), "a broken signature beside the good one": _whole(_broken_twin),
    "65 signatures": lambda text, key: logs.note(text, key, *[logs.Key(f"w{number}", bytes([number]) * 32) for number in range(64)]),
    "a stranger's base64 with spare bits": _stranger("— witness.test/x AAAAAAAB\n".replace("AAAAAAAB", "AAAAAAB=")), "a stranger's id alone": _stranger("— witness.test/x AAAAAA==\n"),
    "a stranger without a signature": _stranger("— witness.test/x\n"), "a stranger without a name": _stranger(f"—  {'A' * 12}\n"), "a stranger with a plus sign": _stranger(f"— a+b {'A' * 12}\n"),
    "a stranger with a wide space": _stranger(f"— a\u3000b {'A' * 12}\n"), "a stranger with a next line": _stranger(f"— a\u0085b {'A' * 12}\n"), "a stranger with a no-break space": _stranger(f"— a\u00a0b {'A' * 12}\n"),
    "a stranger with a control character": _stranger(f"— a\x7fb {'A' * 12}\n"), "a stranger with a separator": _stranger(f"— a\x1fb {'A' * 12}\n"), "a stranger in no UTF-8": _stranger(b"\xe2\x80\x94 a\xffb " + b"A" * 12 + b"\n"),
    "an empty line between signatures": _whole(lambda note: note + b"\n" + note[_line(note):]), "a comment": _stranger("# x\n"),
}.items()}


def _bundle(change):
    return "tile/entries/000.p/3", change


def _tile(change):
    return "tile/0/000.p/3", change


# Of a log of three entries: the file, and its change.
FILES = {
    "an empty tile": ("damaged", *_tile(lambda old: b"")), "a tile cut": ("damaged", *_tile(lambda old: old[:-1])), "a hash too few": ("damaged", *_tile(lambda old: old[:-32])),
    "a byte too many": ("damaged", *_tile(lambda old: old + b"\0")), "a hash too many": ("damaged", *_tile(lambda old: old + old[:32])), "a tile in hexadecimal": ("damaged", *_tile(lambda old: old.hex().encode())),
    "a flipped bit": ("tree", *_tile(lambda old: old[:-1] + bytes([old[-1] ^ 1]))),
    "an empty bundle": ("damaged", *_bundle(lambda old: b"")), "a bundle cut": ("damaged", *_bundle(lambda old: old[:-1])), "a length cut": ("damaged", *_bundle(lambda old: old[:1])),
    "a byte after the bundle": ("damaged", *_bundle(lambda old: old + b"\0")), "an empty entry after it": ("damaged", *_bundle(lambda old: old + b"\0\0")),
    "a newline after it": ("damaged", *_bundle(lambda old: old + b"\n")), "an entry after it": ("damaged", *_bundle(lambda old: old + old[:2 + int.from_bytes(old[:2], "big")])),
    "an entry of no length": ("tree", *_bundle(lambda old: b"\0\0" + old)), "a length too large": ("damaged", *_bundle(lambda old: b"\xff\xff" + old[2:])),
    "lengths the other way round": ("damaged", *_bundle(lambda old: old[1::-1] + old[2:])), "a byte order mark": ("damaged", *_bundle(lambda old: b"\xef\xbb\xbf" + old)),
}
