/* The runtime of this instance: made by initialize-runtime, used by every other export.
 *
 * The context has what Javy's has: the language, no `performance`, no module loader, no host objects beyond io.c, text.c
 * and extras.c. */

#include "state.h"
#include "plugin.h"

/* QuickJS measures the C stack in linear memory; wasm's own stack, which holds what C keeps in locals, grows beside it and is
 * limited by the host. Recursion takes at most STACK_RATIO bytes there for each byte here, with a quarter to spare (charge.h,
 * adapt_quickjs.py), so the limit follows from what the host gives. Until it says, that is wasmtime's default. */
#define STACK_RATIO 5
#define HOST_STACK_BYTES (512u * 1024)
#define SPARE_BYTES (128u * 1024) /* of the C stack: for C functions that do not look at the limit */
#ifndef JEET_C_STACK_BYTES
#error "the build sets JEET_C_STACK_BYTES"
#endif

JSRuntime *jeet_rt;
JSContext *jeet_ctx;

extern void __wasm_call_ctors(void);

static bool add_intrinsics(JSContext *ctx) {
    return JS_AddIntrinsicBaseObjects(ctx) == 0 && JS_AddIntrinsicDate(ctx) == 0 && JS_AddIntrinsicEval(ctx) == 0 &&
           JS_AddIntrinsicRegExp(ctx) == 0 && JS_AddIntrinsicJSON(ctx) == 0 && JS_AddIntrinsicProxy(ctx) == 0 &&
           JS_AddIntrinsicMapSet(ctx) == 0 && JS_AddIntrinsicTypedArrays(ctx) == 0 &&
           JS_AddIntrinsicPromise(ctx) == 0 && JS_AddIntrinsicWeakRef(ctx) == 0 && JS_AddIntrinsicAToB(ctx) == 0;
}

/* Refuses every import, also of modules that are loaded: a name that another module happens to have opens nothing. */
static char *no_imports(JSContext *ctx, const char *base, const char *name, void *opaque) {
    (void)base, (void)opaque;
    JS_ThrowReferenceError(ctx, "could not load module '%s'", name);
    return NULL;
}

/* What is thrown when there is no memory to make an error: one for all, so it is frozen and has no stack. */
static JSValue ready_error = JS_UNDEFINED;

JSValue jeet_out_of_memory(JSContext *ctx) { return JS_IsUndefined(ready_error) ? JS_NULL : JS_DupValue(ctx, ready_error); }

static int make_ready_error(JSContext *ctx) {
    ready_error = JS_NewInternalError(ctx, "out of memory");
    if (JS_IsException(ready_error)) return -1;
    return JS_DefinePropertyValueStr(ctx, ready_error, "stack", JS_NewString(ctx, ""), 0) < 0 ? -1
                                                                                             : JS_FreezeObject(ctx, ready_error);
}

static void stop(void) {
    if (!jeet_rt) return;
    jeet_extras_reset(jeet_ctx);
    jeet_state_reset(jeet_ctx);
    jeet_event_reset();
    jeet_jobs_reset(jeet_ctx);
    JS_FreeValue(jeet_ctx, ready_error);
    ready_error = JS_UNDEFINED;
    JS_FreeContext(jeet_ctx);
    JS_FreeRuntime(jeet_rt);
    jeet_ctx = NULL;
    jeet_rt = NULL;
}

void jeet_set_host_stack(size_t bytes) {
    size_t limit = bytes / STACK_RATIO, most = JEET_C_STACK_BYTES - SPARE_BYTES;
    JS_SetMaxStackSize(jeet_rt, limit < most ? limit : most);
}

void jeet_runtime_start(void) {
    static bool constructed;
    if (!constructed) {
        constructed = true;
        __wasm_call_ctors();
    }
    stop();
    jeet_memory_reset();
    jeet_rt = JS_NewRuntime2(&jeet_malloc_functions, NULL);
    if (!jeet_rt) jeet_die("jeet-plugin: no memory for a JavaScript runtime\n");
    jeet_memory_attach(jeet_rt);
    jeet_set_host_stack(HOST_STACK_BYTES);
    jeet_jobs_install(jeet_rt);
    JS_SetModuleLoaderFunc(jeet_rt, no_imports, NULL, NULL);
    jeet_ctx = JS_NewContextRaw(jeet_rt);
    if (!jeet_ctx || !add_intrinsics(jeet_ctx) || make_ready_error(jeet_ctx) < 0) jeet_die("jeet-plugin: no memory for a JavaScript context\n");
    JSValue global = JS_GetGlobalObject(jeet_ctx);
    if (jeet_add_io(jeet_ctx, global) < 0 || jeet_add_text(jeet_ctx, global) < 0)
        jeet_die("jeet-plugin: cannot set up the global object\n");
    JS_FreeValue(jeet_ctx, global);
}

void jeet_enter(void) {
    if (!jeet_rt) jeet_runtime_start(); /* as the official plugin does: initialize-runtime may be left out */
    JS_UpdateStackTop(jeet_rt);
}
