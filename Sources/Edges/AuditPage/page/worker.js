// The page's threads: an auditor, or a thread of its pool that checks bundles. The thread's name decides.

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
        // Searches run one at a time. A newer request replaces a waiting one.
        wanted = data.ref;
        work = work.then(() => data.ref === wanted ? auditor.find(data.ref) : null);
    };
}
