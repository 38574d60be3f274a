// What runs beside the page: an auditor, and the threads that it gives bundles to. The name says which this is.

import { Auditor } from './auditor.js';
import { serveBundles } from './pool.js';

if (typeof document === 'undefined' && self.name === 'bundles') serveBundles(self);

if (typeof document === 'undefined' && self.name === 'auditor') {
    let auditor = null, work = null, wanted = null;
    self.onmessage = ({ data }) => {
        if (data.order) {
            auditor = new Auditor(data.order, (message) => self.postMessage(message));
            work = auditor.run();
        }
        if (!data.ref) return;
        // One after the other; what is asked for in between is left out.
        wanted = data.ref;
        work = work.then(() => data.ref === wanted ? auditor.find(data.ref) : null);
    };
}
