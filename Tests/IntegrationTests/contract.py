"""Holds answers against docs/openapi.yaml, so that the document can't drift from the broker."""

import functools
import json
import re

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from processes import REPOSITORY

DOCUMENT = REPOSITORY / "docs/openapi.yaml"
BASE = "urn:mayfly:openapi"


@functools.cache
def document():
    return yaml.safe_load(DOCUMENT.read_text())


@functools.cache
def _registry():
    return Registry().with_resource(BASE, Resource.from_contents(document(), default_specification=DRAFT202012))


def _resolve(node):
    while "$ref" in node:
        target = document()
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        node = target
    return node


@functools.cache
def _path(path):
    """The template in the document that this path fits, or None."""
    path = path.split("?")[0]
    for template in document()["paths"]:
        # A name is one segment; a `path` is as many as it likes.
        pattern = re.sub(r"\\\{([^/]*?)\\\}", lambda name: ".+" if name[1] == "path" else "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path):
            return template
    return None


@functools.cache
def _validator(method, template, status, content_type):
    operation = document()["paths"][template].get(method.lower())
    if operation is None:
        return None
    responses = operation["responses"]
    assert str(status) in responses, f"docs/openapi.yaml has no {status} for {method} {template}"
    content = _resolve(responses[str(status)]).get("content", {})
    assert content_type in content, f"docs/openapi.yaml has no {content_type} for {status} of {method} {template}"
    schema = content[content_type].get("schema")
    if schema is None or not content_type.endswith("json"):
        return None
    return _reader(schema)


def _reader(schema):
    absolute = json.loads(json.dumps(schema).replace('"#/', f'"{BASE}#/'))
    return Draft202012Validator(absolute, registry=_registry())


def faults(schema, value):
    """Returns the violations of one of the document's schemas."""
    return [f"{'/'.join(map(str, fault.path))}: {fault.message}" for fault in _reader(schema).iter_errors(value)]


def check(method, path, answer):
    """Fails when the document does not describe this answer. Unknown routes and methods are its 404 and 405."""
    template = _path(path)
    if template is None or method.lower() not in document()["paths"][template]:
        assert answer.status in (400, 404, 405, 413), f"{method} {path} is not in docs/openapi.yaml but gave {answer.status}"
        return
    content_type = answer.headers.get("content-type", "").split(";")[0]
    validator = _validator(method, template, answer.status, content_type)
    if validator is not None:
        faults = [f"{'/'.join(map(str, fault.path))}: {fault.message}" for fault in validator.iter_errors(answer.json)]
        assert not faults, f"{method} {path} {answer.status} is not as docs/openapi.yaml says: {faults}"
