/* Promise jobs, rejections that nobody handled, and the interrupt.
 *
 * A rejected promise is remembered until a handler is attached; what is left when the jobs have run is an unhandled rejection.
 * The table is open-addressed and keyed by the promise, since a function may reject many and handle them all later. */
#include <string.h>
#include <wasi/api.h>

#include "plugin.h"

typedef struct {
    void *promise; /* NULL: free; TOMB: was handled */
    uint32_t order;
    JSValue held, reason;
} Rejection;

#define TOMB ((void *)1)

static Rejection *table;
static uint32_t capacity, filled, live, next_order;
static bool lost; /* the table could not grow: at least one rejection is not in it */

static uint32_t slot_of(const void *promise) { return ((uint32_t)(uintptr_t)promise >> 3) * 2654435761u & (capacity - 1); }

static Rejection *find(const void *promise) {
    if (!capacity) return NULL;
    for (uint32_t i = slot_of(promise);; i = (i + 1) & (capacity - 1)) {
        if (table[i].promise == promise) return &table[i];
        if (!table[i].promise) return NULL;
    }
}

static bool grow(JSContext *ctx) {
    uint32_t old_capacity = capacity, wanted = 16;
    while (wanted < live * 4) wanted *= 2;
    Rejection *old = table, *fresh = js_calloc(ctx, wanted, sizeof *fresh);
    if (!fresh) {
        JS_FreeValue(ctx, JS_GetException(ctx));
        return false;
    }
    table = fresh;
    capacity = wanted;
    filled = live;
    for (uint32_t i = 0; i < old_capacity; i++) {
        if (!old[i].promise || old[i].promise == TOMB) continue;
        uint32_t at = slot_of(old[i].promise);
        while (table[at].promise) at = (at + 1) & (capacity - 1);
        table[at] = old[i];
    }
    js_free(ctx, old);
    return true;
}

static void track(JSContext *ctx, JSValueConst promise, JSValueConst reason, bool handled, void *opaque) {
    (void)opaque;
    void *key = JS_VALUE_GET_PTR(promise);
    Rejection *known = find(key);
    if (handled) {
        if (!known) return;
        JSValue held = known->held, why = known->reason;
        known->promise = TOMB;
        live--;
        JS_FreeValue(ctx, held);
        JS_FreeValue(ctx, why);
        return;
    }
    if (known) return;
    if ((filled + 1) * 2 > capacity && !grow(ctx)) {
        lost = true;
        return;
    }
    uint32_t at = slot_of(key);
    while (table[at].promise) at = (at + 1) & (capacity - 1);
    table[at] = (Rejection){key, next_order++, JS_DupValue(ctx, promise), JS_DupValue(ctx, reason)};
    filled++;
    live++;
}

void jeet_jobs_reset(JSContext *ctx) {
    Rejection *old = table;
    uint32_t old_capacity = capacity;
    table = NULL;
    capacity = filled = live = next_order = 0;
    lost = false;
    for (uint32_t i = 0; i < old_capacity; i++) {
        if (!old[i].promise || old[i].promise == TOMB) continue;
        JS_FreeValue(ctx, old[i].held);
        JS_FreeValue(ctx, old[i].reason);
    }
    js_free(ctx, old);
}

/* { reason, count } of the first rejection that is still unhandled, or undefined; forgets all of them. */
JSValue jeet_take_rejection(JSContext *ctx) {
    if (!live && !lost) return JS_UNDEFINED;
    Rejection *first = NULL;
    for (uint32_t i = 0; i < capacity; i++) {
        if (!table[i].promise || table[i].promise == TOMB) continue;
        if (!first || table[i].order < first->order) first = &table[i];
    }
    JSValue reason = first ? JS_DupValue(ctx, first->reason) : JS_NewInternalError(ctx, "out of memory in a rejected promise");
    uint32_t count = live + (lost ? 1 : 0);
    jeet_jobs_reset(ctx);
    JSValue report = JS_NewObject(ctx);
    if (JS_IsException(report)) {
        JS_FreeValue(ctx, reason);
        return report;
    }
    if (JS_DefinePropertyValueStr(ctx, report, "reason", reason, JS_PROP_C_W_E) < 0 ||
        JS_DefinePropertyValueStr(ctx, report, "count", JS_NewUint32(ctx, count), JS_PROP_C_W_E) < 0) {
        JS_FreeValue(ctx, report);
        return JS_EXCEPTION;
    }
    return report;
}

int jeet_run_jobs(void) {
    int ran = 0;
    JSContext *ctx;
    for (;;) {
        int status = JS_ExecutePendingJob(jeet_rt, &ctx);
        if (status == 0) return ran;
        if (status < 0) return -1;
        if (ran < INT32_MAX) ran++;
    }
}

/* The interrupt. QuickJS asks every few thousand loop turns or calls, and while a regular expression runs. */
static volatile uint32_t interrupt_flag;
static uint64_t deadline_ns; /* 0: none */

static uint64_t monotonic_ns(void) {
    __wasi_timestamp_t now = 0;
    if (__wasi_clock_time_get(__WASI_CLOCKID_MONOTONIC, 1000, &now) != 0) return 0;
    return now;
}

static int must_stop(JSRuntime *rt, void *opaque) {
    (void)rt;
    (void)opaque;
    return interrupt_flag != 0 || (deadline_ns != 0 && monotonic_ns() >= deadline_ns);
}

void jeet_set_deadline(double ms_from_now) {
    deadline_ns = ms_from_now > 0 ? monotonic_ns() + (uint64_t)(ms_from_now * 1e6) : 0;
}

/* Address of a u32 that the host may set to stop JavaScript at the next poll; the host clears it again. */
JEET_EXPORT("jeet-interrupt-flag") volatile uint32_t *jeet_interrupt_flag(void) { return &interrupt_flag; }

void jeet_jobs_install(JSRuntime *rt) {
    interrupt_flag = 0;
    deadline_ns = 0;
    JS_SetHostPromiseRejectionTracker(rt, track, NULL);
    JS_SetInterruptHandler(rt, must_stop, NULL);
}
