// Rebuilds the tree from its leaves and checks each tile above the entries.

import { equal } from './bytes.js';
import { Finding } from './findings.js';
import { rootOf, treeHash } from './tree.js';

export class Growth {
    /** Per level, the hashes of the tile that is being filled. */
    #levels = [[]];
    #bundles = 0;

    constructor(tiles) {
        this.tiles = tiles;
    }

    /** Adds the hash of the next full bundle. */
    async add(hash) {
        this.#bundles += 1;
        for (let level = 1, next = hash; next !== null; level++) {
            this.#levels[level] ??= [];
            this.#levels[level].push(next);
            const hashes = this.#levels[level];
            next = null;
            if (hashes.length < 256) break;
            this.#levels[level] = [];
            const index = this.#bundles / 256 ** level - 1;
            this.#compare(await this.tiles.hashes(level, index), hashes, this.tiles.path(level, index));
            next = await treeHash(hashes);
        }
    }

    /** Adds the hashes of the last, partial bundle's entries, and checks the right edge and the root. */
    async finish(hashes, root) {
        this.#levels[0] = hashes;
        for (let level = 1; level < this.#levels.length; level++) {
            if (this.#levels[level].length === 0) continue;
            const index = Math.floor(this.#bundles / 256 ** level);
            this.#compare(await this.tiles.tile(level, index), this.#levels[level], this.tiles.path(level, index));
        }
        if (!equal(await rootOf(this.#levels), root)) {
            throw new Finding('tree', "signs a root that differs from the entries' root", { file: 'checkpoint' });
        }
    }

    #compare(tile, hashes, file) {
        const place = hashes.findIndex((hash, number) => !equal(hash, tile[number]));
        if (place >= 0) throw new Finding('tree', `contains a hash, number ${place}, that doesn't match the entries`, { file });
    }
}
