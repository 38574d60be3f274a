// BLAKE2b-256 with a key (RFC 7693).

// Each 64-bit word as its low half and its high half.
const initial = Uint32Array.of(
    0xf3bcc908, 0x6a09e667, 0x84caa73b, 0xbb67ae85, 0xfe94f82b, 0x3c6ef372, 0x5f1d36f1, 0xa54ff53a,
    0xade682d1, 0x510e527f, 0x2b3e6c1f, 0x9b05688c, 0xfb41bd6b, 0x1f83d9ab, 0x137e2179, 0x5be0cd19);
/** The order of the message's words in each of 12 rounds. */
const schedule = [
    '0123456789abcdef', 'ea489fd61c02b753', 'b8c052fdae367194', '7931dcbe265a40f8', '905724afe1bc683d', '2c6a0b834d75fe19',
    'c51fed4a0763928b', 'db7ec13950f4862a', '6fe9b308c2d714a5', 'a2847615fb9e3cd0', '0123456789abcdef', 'ea489fd61c02b753',
].map((row) => Uint8Array.from(row, (digit) => 2 * parseInt(digit, 16)));
/** The words that each step mixes: the columns, then the diagonals. */
const steps = [
    [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15], [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
].map((words) => words.map((word) => 2 * word));
const blockLength = 128, digestLength = 32;
const work = new Uint32Array(32), message = new Uint32Array(32);

function add(to, low, high) {
    const sum = work[to] + low;
    work[to + 1] += high + (sum > 0xffffffff ? 1 : 0);
    work[to] = sum;
}

/** `work[to] = (work[to] ^ work[from]) >>> bits` as a rotation, for 0 < bits < 32. */
function rotate(to, from, bits) {
    const low = work[to] ^ work[from], high = work[to + 1] ^ work[from + 1];
    work[to] = low >>> bits | high << 32 - bits;
    work[to + 1] = high >>> bits | low << 32 - bits;
}

function swap(to, from) {
    const low = work[to] ^ work[from];
    work[to] = work[to + 1] ^ work[from + 1];
    work[to + 1] = low;
}

function mix([a, b, c, d], x, y) {
    add(a, work[b], work[b + 1]);
    add(a, message[x], message[x + 1]);
    swap(d, a);
    add(c, work[d], work[d + 1]);
    rotate(b, c, 24);
    add(a, work[b], work[b + 1]);
    add(a, message[y], message[y + 1]);
    rotate(d, a, 16);
    add(c, work[d], work[d + 1]);
    // A rotation by 63 to the right is one by 1 to the left.
    const low = work[b] ^ work[c], high = work[b + 1] ^ work[c + 1];
    work[b] = low << 1 | high >>> 31;
    work[b + 1] = high << 1 | low >>> 31;
}

function compress(state, block, count, isLast) {
    for (let i = 0; i < 32; i++) {
        message[i] = (block[4 * i] | block[4 * i + 1] << 8 | block[4 * i + 2] << 16 | block[4 * i + 3] << 24) >>> 0;
    }
    work.set(state);
    work.set(initial, 16);
    work[24] ^= count;
    if (isLast) [work[28], work[29]] = [~work[28], ~work[29]];
    for (const words of schedule) for (let step = 0; step < 8; step++) mix(steps[step], words[2 * step], words[2 * step + 1]);
    for (let i = 0; i < 16; i++) state[i] ^= work[i] ^ work[i + 16];
}

/** Hashes many messages with one key of 1 to 64 bytes. */
export class KeyedHash {
    #keyed = initial.slice();

    constructor(key) {
        const block = new Uint8Array(blockLength);
        block.set(key);
        this.#keyed[0] ^= 0x01010000 ^ key.length << 8 ^ digestLength;
        compress(this.#keyed, block, blockLength, false);
    }

    /** The 32 bytes for a message of 1 to 2^31 bytes. */
    digest(bytes) {
        const state = this.#keyed.slice(), block = new Uint8Array(blockLength);
        let at = 0;
        for (; bytes.length - at > blockLength; at += blockLength) {
            compress(state, bytes.subarray(at, at + blockLength), blockLength + at + blockLength, false);
        }
        block.set(bytes.subarray(at));
        compress(state, block, blockLength + bytes.length, true);
        return Uint8Array.from({ length: digestLength }, (_, i) => state[i >> 2] >>> 8 * (i & 3));
    }
}
