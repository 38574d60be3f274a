// What runs beside the page: an auditor, and the threads that it gives bundles to. The name says which this is.

import { Auditor } from './auditor.js';
import { serveBundles } from './pool.js';

if (typeof document === 'undefined' && self.name === 'bundles') serveBundles(self);

if (typeof document === 'undefined' && self.name === 'auditor') {
    let auditor = null;
    self.onmessage = ({ data }) => {
        if (data.order) {
            auditor = new Auditor(data.order, (message) => self.postMessage(message));
            auditor.run();
        }
        if (data.ref) self.postMessage({ kind: 'life', ref: data.ref, life: auditor.lives.of(data.ref, auditor.story) });
    };
}
