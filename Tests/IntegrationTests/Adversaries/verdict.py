"""Compares what an adversary got with what the design allows."""

import table
from thief import KINDS, NAMES


def hold(got, truth, adversary, tried, allowed, may=None, **must):
    """Adds a row to the table. Fails unless `got` has all of `must` ({kind: values}), and otherwise only what `may` allows."""
    everything = truth.all
    table.record(adversary, tried, got.said(everything), allowed)
    wrong = []
    for kind in KINDS:
        found, due = getattr(got, kind), set(must.get(kind, ()))
        surplus, missing = found - due - set((may or {}).get(kind, ())), due - found
        if surplus:
            wrong.append(f"{len(surplus)} {NAMES[kind]}(s) too many, by {' and '.join(sorted(got.how[kind]))}")
        if missing:
            wrong.append(f"{len(missing)} {NAMES[kind]}(s) of {len(due)} not recovered")
        if made_up := found - everything[kind]:
            wrong.append(f"{len(made_up)} {NAMES[kind]}(s) that nobody had")
    # A ref opens with its token, and with nothing else.
    if got.refs.keys() != got.opened or any(len(refs) > 1 for refs in got.refs.values()):
        wrong.append(f"{len(got.refs)} ref(s) for {len(got.opened)} token(s), by {' and '.join(sorted(got.how['refs']))}")
    assert not wrong, f"{adversary}, {tried}: {'; '.join(wrong)}. Allowed: {allowed}"
