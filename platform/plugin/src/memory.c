/* The allocator under QuickJS. It sees arenas and large blocks, not single objects, so a little bookkeeping is free.
 *
 * Promise: JavaScript never holds more than limit + RESERVE bytes, and running into the limit is a JavaScript error.
 * The allocation that first crosses the limit fails; after it RESERVE bytes more may be used, so that the error object,
 * its stack and the handler that catches it have room: without them QuickJS ends up throwing null. The reserve is put back as
 * soon as usage has halved. */
#include "plugin.h"

#define RESERVE (256u * 1024u)
#define OVERHEAD 8u /* of heap.c */

static JSRuntime *collected; /* whose collection threshold to lower, once it exists */
static size_t used, peak, limit, ceiling, collect_at;
static size_t rearm_below; /* after a refusal: the usage at which the reserve is put back; 0: it is there */
static void *spare;        /* the reserve as a block, for when it is the host that has no more */
static uint32_t refusals;

static void rearm(void) {
    if (!spare) spare = heap_malloc(RESERVE);
    rearm_below = 0;
    ceiling = limit;
    collect_at = limit == SIZE_MAX ? SIZE_MAX : limit - limit / 4;
}

void jeet_memory_reset(void) {
    collected = NULL;
    used = peak = 0;
    refusals = 0;
    limit = SIZE_MAX;
    rearm();
}

void jeet_memory_attach(JSRuntime *rt) { collected = rt; }

void jeet_memory_set_limit(size_t bytes) {
    limit = bytes == 0 || bytes > SIZE_MAX - RESERVE ? SIZE_MAX : bytes;
    rearm();
}

size_t jeet_memory_used(void) { return used; }
size_t jeet_memory_limit(void) { return limit == SIZE_MAX ? 0 : limit; }
size_t jeet_memory_peak(void) { return peak; }
uint32_t jeet_memory_refusals(void) { return refusals; }

static bool refuse(void) {
    refusals++;
    rearm_below = used / 2;
    if (limit != SIZE_MAX) ceiling = limit + RESERVE;
    heap_free(spare);
    spare = NULL;
    return false;
}

static bool admit(size_t more) { return more <= ceiling && used <= ceiling - more ? true : refuse(); }

static void count(size_t more) {
    used += more;
    if (used > peak) peak = used;
    /* QuickJS collects cycles when the heap has grown by half since the last time, which may lie past the limit:
     * garbage would then cost the function its life. Past three quarters, and again at each half of what is left,
     * ask for a collection at the next object. */
    if (used > collect_at && collected) {
        JS_SetGCThreshold(collected, 0);
        collect_at = used < limit ? used + (limit - used) / 2 + 64 * 1024 : SIZE_MAX;
    }
}

static void discount(size_t less) {
    used = less < used ? used - less : 0;
    if (used < rearm_below) rearm();
}

static void *count_block(void *block) {
    if (!block) {
        refuse(); /* the host's own limit on linear memory */
        return NULL;
    }
    count(heap_usable_size(block) + OVERHEAD);
    return block;
}

static void *limited_malloc(void *opaque, size_t size) {
    (void)opaque;
    return admit(size) ? count_block(heap_malloc(size)) : NULL;
}

static void *limited_calloc(void *opaque, size_t n, size_t size) {
    (void)opaque;
    size_t total;
    if (__builtin_mul_overflow(n, size, &total)) return NULL;
    return admit(total) ? count_block(heap_calloc(n, size)) : NULL;
}

static void limited_free(void *opaque, void *block) {
    (void)opaque;
    if (!block) return;
    discount(heap_usable_size(block) + OVERHEAD);
    heap_free(block);
}

static void *limited_realloc(void *opaque, void *block, size_t size) {
    if (!block) return limited_malloc(opaque, size);
    size_t before = heap_usable_size(block);
    if (size > before && !admit(size - before)) return NULL;
    void *moved = heap_realloc(block, size);
    if (!moved) {
        refuse();
        return NULL;
    }
    size_t after = heap_usable_size(moved);
    if (after >= before)
        count(after - before);
    else
        discount(before - after);
    return moved;
}

static size_t usable(const void *block) { return heap_usable_size(block); }

const JSMallocFunctions jeet_malloc_functions = {
    .js_calloc = limited_calloc,
    .js_malloc = limited_malloc,
    .js_free = limited_free,
    .js_realloc = limited_realloc,
    .js_malloc_usable_size = usable,
};
