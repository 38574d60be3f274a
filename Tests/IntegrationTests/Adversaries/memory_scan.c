// Finds pieces of many secrets in a block of memory. At every fourth byte of a form, the eight bytes from there are in a table; a find is then
// widened as far as memory and form are equal. Loaded by memory_scan.py.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 4, FILTER_BITS = 24 };

struct entry { uint64_t word; uint32_t form, offset; };
struct form { uint64_t start; uint32_t length, least; };
struct hit { uint64_t offset; uint32_t form, from, length; };
struct search {
    const uint8_t *bytes;
    const struct form *forms;
    struct entry *table;
    uint64_t mask;
    uint8_t *filter;
};

static uint64_t word_at(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    return word;
}

static uint64_t mixed(uint64_t word) { return word * 0x9E3779B97F4A7C15u; }

// `bytes`: all forms, one after the other. Both arrays must outlive the search.
struct search *search_make(const uint8_t *bytes, const struct form *forms, uint32_t count) {
    struct search *search = calloc(1, sizeof *search);
    uint64_t entries = 0, size = 1024;
    for (uint32_t i = 0; i < count; i++) entries += forms[i].length < 8 ? 0 : (forms[i].length - 8) / STEP + 1;
    while (size < entries * 2) size *= 2;
    search->bytes = bytes;
    search->forms = forms;
    search->mask = size - 1;
    search->table = calloc(size, sizeof *search->table);
    search->filter = calloc(1u << (FILTER_BITS - 3), 1);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t offset = 0; offset + 8 <= forms[i].length; offset += STEP) {
            uint64_t word = word_at(bytes + forms[i].start + offset);
            if (word == 0) continue;
            uint64_t key = mixed(word), place = (key >> 20) & search->mask;
            while (search->table[place].word != 0) place = (place + 1) & search->mask;
            search->table[place] = (struct entry){word, i, offset};
            search->filter[key >> (67 - FILTER_BITS)] |= 1 << (key >> (64 - FILTER_BITS) & 7);
        }
    }
    return search;
}

void search_free(struct search *search) {
    free(search->table);
    free(search->filter);
    free(search);
}

// XORs each byte with the one four places on, which cancels a WebSocket's mask. Writes `size - 4` bytes.
void fold(const uint8_t *data, uint64_t size, uint8_t *folded) {
    for (uint64_t at = 0; at + 4 < size; at++) folded[at] = data[at] ^ data[at + 4];
}

// Returns at most `room` finds of a form's least length or more; each once, at its start.
uint32_t search_run(const struct search *search, const uint8_t *data, uint64_t size, struct hit *hits, uint32_t room) {
    uint32_t found = 0;
    for (uint64_t at = 0; at + 8 <= size; at++) {
        uint64_t word = word_at(data + at), key = mixed(word);
        if (!(search->filter[key >> (67 - FILTER_BITS)] >> (key >> (64 - FILTER_BITS) & 7) & 1)) continue;
        for (uint64_t place = (key >> 20) & search->mask; search->table[place].word != 0; place = (place + 1) & search->mask) {
            struct entry entry = search->table[place];
            if (entry.word != word) continue;
            const struct form *form = &search->forms[entry.form];
            const uint8_t *bytes = search->bytes + form->start;
            uint64_t from = entry.offset, begin = at, to = from + 8, end = at + 8;
            while (from > 0 && begin > 0 && bytes[from - 1] == data[begin - 1]) from--, begin--;
            // An earlier word of the same piece has reported it.
            if (((from + STEP - 1) / STEP) * STEP != entry.offset) continue;
            while (to < form->length && end < size && bytes[to] == data[end]) to++, end++;
            if (to - from < form->least) continue;
            if (found < room) hits[found] = (struct hit){begin, entry.form, (uint32_t)from, (uint32_t)(to - from)};
            found++;
        }
    }
    return found;
}
