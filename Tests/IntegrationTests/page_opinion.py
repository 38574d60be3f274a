"""The verdict of the auditor's page on many logs, by its own modules without the view."""

import json

ASK = """(async () => {
    const { Auditor } = await import('/page/auditor.js');
    const { readKey } = await import('/page/note.js');
    let end = null, figures = null;
    const order = { place: { base: %(base)s }, threads: 0, vkey: %(vkey)s, kept: %(kept)s, others: [], witnesses: await Promise.all(%(witnesses)s.map(readKey)), allowsGaps: %(gaps)s };
    const auditor = new Auditor(order, (message) => {
        if (message.kind === 'end') end = message;
        if (message.kind === 'figures' && message.isFinal) figures = message.figures;
    });
    await auditor.run();
    return { ...end, figures };
})()"""


class PageOpinion:
    """`page`: an open page of a server that has the page at its root and logs below it."""

    def __init__(self, page, url):
        self.page, self.url = page, url

    def __call__(self, path, vkey, kept=None, allow_gaps=False, witnesses=()):
        """(code of the first finding, None for a good log, `unable` for none; the whole answer). `witnesses`: keys."""
        kept = kept and {"note": kept, "at": "", "since": ""}
        values = {"base": f"{self.url}/{path}/", "vkey": vkey, "kept": kept, "gaps": allow_gaps, "witnesses": list(witnesses)}
        said = self.page.value(ASK % {name: json.dumps(value) for name, value in values.items()})
        return said["findings"][0]["code"] if said["findings"] else "unable" if said["unable"] else None, said
