/* The heap of the whole plugin: two-level segregated free lists over linear memory, blocks joined with free neighbours.
 *
 * zig's libc rounds every allocation up to a power of two and never joins what was freed, which costs 40 % and more of a
 * tenant's memory. Here an allocation costs 8 bytes and a search of constant time, a free block is found if there is one
 * (up to 1/32 larger than asked), and the last block grows in place, so that a large array need not exist twice to grow.
 *
 * A block is a header of 8 bytes and its payload; sizes are multiples of 8 and include the header. A free block also holds
 * its links in the list of its class, and its size again in its last word, where the next block finds it. */
#include <string.h>

#include "plugin.h"

#define PAGE 65536u
#define ALIGN 8u
#define HEADER 8u
#define SMALLEST 24u /* header, two links, size */
#define FREE 1u      /* of this block */
#define AFTER_FREE 2u /* the block before it is free */
#define SIZE_MASK (~7u)
#define SECOND_BITS 5u
#define SECONDS (1u << SECOND_BITS)
#define FIRST_SHIFT 8u /* sizes below 2^8 have one class for each multiple of 8 */
#define FIRSTS (32u - FIRST_SHIFT + 1u)
#define LARGEST 0x7FFF0000u
#define GROWTH_PAGES 4u

typedef struct Block {
    uint32_t size; /* and the two flags */
    uint32_t unused; /* keeps payloads aligned */
    struct Block *next, *previous; /* only of a free block */
} Block;

static Block *lists[FIRSTS][SECONDS];
static uint32_t first_map, second_map[FIRSTS];
static Block *last; /* the end mark of the newest region: a block of size HEADER that is never free */

static uint32_t size_of(const Block *block) { return block->size & SIZE_MASK; }
static Block *after(const Block *block) { return (Block *)((char *)block + size_of(block)); }
static Block *of(void *payload) { return (Block *)((char *)payload - HEADER); }
static void *payload_of(Block *block) { return (char *)block + HEADER; }
static uint32_t log2_of(uint32_t value) { return 31u - (uint32_t)__builtin_clz(value); }

static void classify(uint32_t size, uint32_t *first, uint32_t *second) {
    if (size < 1u << FIRST_SHIFT) {
        *first = 0;
        *second = size / (1u << (FIRST_SHIFT - SECOND_BITS));
    } else {
        uint32_t power = log2_of(size);
        *first = power - FIRST_SHIFT + 1;
        *second = (size >> (power - SECOND_BITS)) & (SECONDS - 1);
    }
}

static void list(Block *block) {
    uint32_t first, second;
    classify(size_of(block), &first, &second);
    block->previous = NULL;
    block->next = lists[first][second];
    if (block->next) block->next->previous = block;
    lists[first][second] = block;
    first_map |= 1u << first;
    second_map[first] |= 1u << second;
}

static void unlist(Block *block) {
    uint32_t first, second;
    classify(size_of(block), &first, &second);
    if (block->next) block->next->previous = block->previous;
    if (block->previous) {
        block->previous->next = block->next;
        return;
    }
    lists[first][second] = block->next;
    if (block->next) return;
    second_map[first] &= ~(1u << second);
    if (!second_map[first]) first_map &= ~(1u << first);
}

/* Marks the block free, tells the block behind it, joins it with free neighbours, and lists it. */
static void make_free(Block *block) {
    uint32_t size = size_of(block);
    if (block->size & AFTER_FREE) {
        uint32_t before = ((uint32_t *)block)[-1];
        block = (Block *)((char *)block - before);
        unlist(block);
        size += before;
    }
    Block *next = (Block *)((char *)block + size);
    if (next->size & FREE) {
        unlist(next);
        size += size_of(next);
        next = (Block *)((char *)block + size);
    }
    block->size = size | FREE; /* the block before it is in use, or it would have been joined */
    ((uint32_t *)next)[-1] = size;
    next->size |= AFTER_FREE;
    list(block);
}

/* A block in use gives back what it has beyond `size`, if that makes a block. */
static void trim(Block *block, uint32_t size) {
    uint32_t whole = size_of(block);
    if (whole - size < SMALLEST) return;
    block->size = size | (block->size & AFTER_FREE);
    Block *rest = after(block);
    rest->size = whole - size;
    make_free(rest);
}

static void take(Block *block) {
    unlist(block);
    block->size &= ~FREE;
    after(block)->size &= ~AFTER_FREE;
}

/* A free block of at least `size`: the first of the classes that hold nothing smaller, else the first that fits among a few
 * of its own class. */
static Block *find(uint32_t size) {
    uint32_t first, second, rounded = size;
    if (size >= 1u << FIRST_SHIFT) rounded += (1u << (log2_of(size) - SECOND_BITS)) - 1;
    classify(rounded, &first, &second);
    uint32_t map = second_map[first] & (~0u << second);
    if (!map) {
        uint32_t larger = first_map & (~0u << (first + 1));
        if (larger) {
            first = (uint32_t)__builtin_ctz(larger);
            map = second_map[first];
        }
    }
    if (map) return lists[first][__builtin_ctz(map)];
    classify(size, &first, &second);
    Block *block = lists[first][second];
    for (int tries = 32; block && tries > 0; block = block->next, tries--)
        if (size_of(block) >= size) return block;
    return NULL;
}

/* More linear memory as free space behind the last block, or as a new region if somebody else has grown memory in between.
 * Several calls may be needed for one large block in the second case. */
static bool extend(uint32_t size) {
    uint32_t there = last && last->size & AFTER_FREE ? ((uint32_t *)last)[-1] : 0;
    uint32_t wanted = (there < size ? size - there : 0) + 2 * HEADER;
    uint32_t least = (wanted + PAGE - 1) / PAGE, pages = least < GROWTH_PAGES ? GROWTH_PAGES : least;
    size_t before = __builtin_wasm_memory_grow(0, pages);
    if (before == (size_t)-1) before = __builtin_wasm_memory_grow(0, pages = least);
    if (before == (size_t)-1) return false;
    char *start = (char *)(before * PAGE), *end = start + pages * PAGE;
    Block *fresh = (Block *)start;
    uint32_t after_free = 0;
    if (last && (char *)last + HEADER == start) {
        fresh = last; /* the end mark becomes the head of the new block */
        after_free = last->size & AFTER_FREE;
    }
    fresh->size = (uint32_t)(end - HEADER - (char *)fresh) | after_free;
    last = (Block *)(end - HEADER);
    last->size = HEADER;
    make_free(fresh);
    return true;
}

static uint32_t block_size(size_t bytes) {
    uint32_t size = ((uint32_t)bytes + HEADER + ALIGN - 1) & ~(ALIGN - 1);
    return size < SMALLEST ? SMALLEST : size;
}

void *heap_malloc(size_t bytes) {
    if (bytes > LARGEST) return NULL;
    uint32_t size = block_size(bytes);
    Block *block;
    while (!(block = find(size)))
        if (!extend(size)) return NULL;
    take(block);
    trim(block, size);
    return payload_of(block);
}

void *heap_calloc(size_t count, size_t each) {
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes)) return NULL;
    void *payload = heap_malloc(bytes);
    return payload ? memset(payload, 0, bytes) : NULL;
}

void heap_free(void *payload) {
    if (payload) make_free(of(payload));
}

size_t heap_usable_size(const void *payload) { return payload ? size_of(of((void *)payload)) - HEADER : 0; }

void *heap_realloc(void *payload, size_t bytes) {
    if (!payload) return heap_malloc(bytes);
    if (bytes > LARGEST) return NULL;
    Block *block = of(payload);
    uint32_t size = block_size(bytes), whole = size_of(block);
    if (whole < size) {
        Block *next = after(block);
        uint32_t there = next->size & FREE ? size_of(next) : 0;
        Block *end = there ? after(next) : next;
        if (whole + there < size && end == last && extend(size - whole)) {
            next = after(block); /* an end mark that became a block, or the free block that took the new memory in */
            there = next->size & FREE ? size_of(next) : 0;
        }
        if (whole + there < size) {
            void *moved = heap_malloc(bytes);
            if (!moved) return NULL;
            memcpy(moved, payload, whole - HEADER);
            heap_free(payload);
            return moved;
        }
        take(next);
        block->size += there;
    }
    trim(block, size);
    return payload;
}
