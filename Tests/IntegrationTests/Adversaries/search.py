"""Looks for many secrets at once."""

from collections import defaultdict

HEAD = 8


def search(contents, canaries):
    """The names of those that stand in any of these bytes, in any of their forms."""
    by_head, found = defaultdict(list), set()
    for form, name in canaries.forms.items():
        by_head[form[:HEAD]].append((form, name))
    heads = by_head.get
    for content in contents:
        for at in range(len(content) - HEAD + 1):
            for form, name in heads(content[at:at + HEAD], ()):
                if content.startswith(form, at):
                    found.add(name)
    return sorted(found)
