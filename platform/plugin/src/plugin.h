/* What the parts of the plugin share. One wasm instance holds one runtime and one context; wasm here has one thread,
 * so the state is plain globals. */
#ifndef JEET_PLUGIN_H
#define JEET_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quickjs.h"

#define JEET_EXPORT(name) __attribute__((export_name(name), visibility("default")))

/* The name Javy gives to the module in stack traces. */
#define JEET_MODULE_NAME "function.mjs"

typedef enum {
    JEET_OK = 0,
    JEET_THREW = 1,       /* an uncaught JavaScript error; the instance is still usable */
    JEET_INTERRUPTED = 2, /* stopped by the interrupt or the deadline; the instance is still usable */
} JeetStatus;

/* quickjs.c, made public by adapt_quickjs.py: frees a module and takes it off the list of those that can be found. Without
 * imports (runtime.c) nothing else points at a module whose evaluation has settled. */
void js_free_module_def(JSContext *ctx, JSModuleDef *m);

/* runtime.c: the one runtime of this instance. */
extern JSRuntime *jeet_rt;
extern JSContext *jeet_ctx;
void jeet_runtime_start(void);
void jeet_set_host_stack(size_t bytes);
JSValue jeet_out_of_memory(JSContext *ctx); /* called by QuickJS: adapt_quickjs.py */
void jeet_enter(void); /* first line of every export that runs JavaScript */

/* heap.c: linear memory; payloads are aligned to 8 bytes. NULL when the host gives no more. */
void *heap_malloc(size_t bytes);
void *heap_calloc(size_t count, size_t each);
void *heap_realloc(void *payload, size_t bytes);
void heap_free(void *payload);
size_t heap_usable_size(const void *payload);

/* memory.c: the allocator under QuickJS: counts, limits, and asks for a collection in good time. */
extern const JSMallocFunctions jeet_malloc_functions;
void jeet_memory_reset(void);
void jeet_memory_attach(JSRuntime *rt);
void jeet_memory_set_limit(size_t bytes);
size_t jeet_memory_used(void);
size_t jeet_memory_limit(void);
size_t jeet_memory_peak(void);
uint32_t jeet_memory_refusals(void);

/* jobs.c: promise jobs, unhandled rejections, the interrupt. */
void jeet_jobs_install(JSRuntime *rt);
void jeet_jobs_reset(JSContext *ctx);
int jeet_run_jobs(void); /* number of jobs run, or -1 with the exception pending */
JSValue jeet_take_rejection(JSContext *ctx);
void jeet_set_deadline(double ms_from_now);
void jeet_arm_interrupt(void);

/* error.c: an exception as text; process end. */
char *jeet_describe_exception(JSContext *ctx, size_t *len, bool *interrupted); /* from the heap; takes the exception */
JSValue jeet_showable(JSContext *ctx, JSValueConst value);
void jeet_write_stderr(const char *text, size_t len);
_Noreturn void jeet_die(const char *text); /* text to stderr, then a trap */

/* io.c, text.c, extras.c: what JavaScript sees. */
int jeet_add_io(JSContext *ctx, JSValueConst global);
int jeet_add_text(JSContext *ctx, JSValueConst global);
int jeet_add_extras(JSContext *ctx, JSValueConst javy);
int jeet_write_all(int fd, const uint8_t *data, size_t len);

/* extras.c: entry points that JavaScript registered, the namespace of the module evaluated last, input slots. */
void jeet_extras_reset(JSContext *ctx);
JSValue jeet_find_entry(JSContext *ctx, const char *name, size_t len);
void jeet_set_namespace(JSContext *ctx, JSValue ns);
bool jeet_set_input(uint32_t slot, uint8_t *data, size_t len);
const uint8_t *jeet_output(size_t *len);

#endif
