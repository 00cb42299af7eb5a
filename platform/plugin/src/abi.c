/* The exports: those of every Javy plugin first, then those that only this plugin has (names with `jeet-`).
 *
 * As in Javy's canonical ABI, a buffer passed to a Javy export was made by cabi_realloc and belongs to the plugin from then on.
 * The jeet- exports leave their arguments to the host, except where they say otherwise. */
#include <string.h>

#include "plugin.h"

typedef struct {
    uint32_t failed, data, len;
} Result;

static Result compiled;
static uint32_t error_text[2];

JEET_EXPORT("initialize-runtime") void initialize_runtime(void) { jeet_runtime_start(); }

JEET_EXPORT("cabi_realloc") void *cabi_realloc(void *block, size_t old_len, size_t align, size_t new_len) {
    (void)old_len;
    if (new_len == 0) return (void *)align; /* a non-null address that nobody reads */
    if (align > 8) jeet_die("jeet-plugin: cabi_realloc: alignment above 8\n");
    void *moved = heap_realloc(old_len ? block : NULL, new_len);
    if (!moved) jeet_die("jeet-plugin: out of memory in cabi_realloc\n");
    return moved;
}

/* For blocks made by cabi_realloc that were not handed over. */
JEET_EXPORT("jeet-free") void jeet_free(void *block, size_t len) {
    if (len) heap_free(block);
}

static void release(void *argument, size_t len) {
    if (len) heap_free(argument);
}

static void set_result(uint32_t failed, void *data, size_t len) {
    heap_free((void *)(uintptr_t)compiled.data);
    compiled = (Result){failed, (uint32_t)(uintptr_t)data, len};
}

static Result *compile(const char *source, size_t len, const char *name) {
    jeet_enter();
    char *text = heap_malloc(len + 1); /* the parser wants a NUL behind the last byte */
    if (!text) jeet_die("jeet-plugin: out of memory for the source\n");
    memcpy(text, source, len);
    text[len] = 0;
    JSValue module = JS_Eval(jeet_ctx, text, len, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    heap_free(text);
    size_t size = 0;
    uint8_t *bytecode = NULL, *copy = NULL;
    if (!JS_IsException(module)) {
        bytecode = JS_WriteObject(jeet_ctx, &size, module, JS_WRITE_OBJ_BYTECODE);
        js_free_module_def(jeet_ctx, JS_VALUE_GET_PTR(module));
    }
    if (bytecode) {
        copy = heap_malloc(size);
        if (!copy) jeet_die("jeet-plugin: out of memory for the bytecode\n");
        memcpy(copy, bytecode, size);
        js_free(jeet_ctx, bytecode);
        set_result(0, copy, size);
    } else {
        char *message = jeet_describe_exception(jeet_ctx, &size, NULL);
        set_result(1, message, size);
    }
    return &compiled;
}

JEET_EXPORT("compile-src") Result *compile_src(char *source, size_t len) {
    Result *result = compile(source, len, JEET_MODULE_NAME);
    release(source, len);
    return result;
}

/* Evaluates a module and waits for it as far as jobs go. A module that has settled is in *module and its promise is done;
 * otherwise *module is NULL. An error that is thrown leaves the module to QuickJS's list. */
static JeetStatus evaluate(const uint8_t *bytecode, size_t len, JSModuleDef **module) {
    *module = NULL;
    JSValue loaded = JS_ReadObject(jeet_ctx, bytecode, len, JS_READ_OBJ_BYTECODE);
    if (JS_IsException(loaded)) return JEET_THREW;
    if (!JS_IsModule(loaded)) {
        JS_FreeValue(jeet_ctx, loaded);
        JS_ThrowTypeError(jeet_ctx, "the bytecode is not that of a module");
        return JEET_THREW;
    }
    JSModuleDef *definition = JS_VALUE_GET_PTR(loaded);
    if (JS_ResolveModule(jeet_ctx, loaded) < 0) {
        JS_FreeValue(jeet_ctx, loaded);
        return JEET_THREW;
    }
    JSValue promise = JS_EvalFunction(jeet_ctx, loaded);
    if (JS_IsException(promise)) return JEET_THREW;
    JeetStatus status = jeet_run_jobs() < 0 ? JEET_THREW : JEET_OK;
    JSPromiseStateEnum state = JS_PromiseState(jeet_ctx, promise);
    if (status == JEET_OK && state == JS_PROMISE_REJECTED) {
        JS_PromiseMarkAsHandled(jeet_ctx, promise);
        JS_Throw(jeet_ctx, JS_PromiseResult(jeet_ctx, promise));
        status = JEET_THREW;
    }
    if (status == JEET_OK && state == JS_PROMISE_FULFILLED) *module = definition;
    JS_FreeValue(jeet_ctx, promise);
    return status;
}

static JeetStatus call(JSValueConst function) {
    JSValue value = JS_Call(jeet_ctx, function, JS_UNDEFINED, 0, NULL);
    if (JS_IsException(value)) return JEET_THREW;
    JeetStatus status = jeet_run_jobs() < 0 ? JEET_THREW : JEET_OK;
    if (status == JEET_OK && JS_PromiseState(jeet_ctx, value) == JS_PROMISE_REJECTED) {
        JS_PromiseMarkAsHandled(jeet_ctx, value);
        JS_Throw(jeet_ctx, JS_PromiseResult(jeet_ctx, value));
        status = JEET_THREW;
    }
    JS_FreeValue(jeet_ctx, value);
    return status;
}

static void throw_unsettled(void) {
    JS_ThrowTypeError(jeet_ctx, "the module waits for something that never comes (top-level await)");
}

static JeetStatus call_export(JSModuleDef *module, const char *name, size_t len) {
    JSValue ns = JS_GetModuleNamespace(jeet_ctx, module);
    if (JS_IsException(ns)) return JEET_THREW;
    JSAtom atom = JS_NewAtomLen(jeet_ctx, name, len);
    JSValue function = atom == JS_ATOM_NULL ? JS_EXCEPTION : JS_GetProperty(jeet_ctx, ns, atom);
    JS_FreeAtom(jeet_ctx, atom);
    JS_FreeValue(jeet_ctx, ns);
    if (JS_IsException(function)) return JEET_THREW;
    JeetStatus status = JEET_THREW;
    if (JS_IsFunction(jeet_ctx, function))
        status = call(function);
    else
        JS_ThrowTypeError(jeet_ctx, "the module exports no function '%.*s'", (int)len, name);
    JS_FreeValue(jeet_ctx, function);
    return status;
}

JEET_EXPORT("invoke") void invoke(uint8_t *bytecode, size_t len, uint32_t has_name, char *name, size_t name_len) {
    jeet_enter();
    JSModuleDef *module;
    JeetStatus status = evaluate(bytecode, len, &module);
    release(bytecode, len);
    if (status == JEET_OK && has_name) {
        if (module) {
            status = call_export(module, name, name_len);
        } else {
            throw_unsettled();
            status = JEET_THREW;
        }
    }
    if (has_name) release(name, name_len);
    if (status == JEET_OK) {
        if (module) js_free_module_def(jeet_ctx, module);
        jeet_jobs_reset(jeet_ctx); /* Javy ignores rejections that nobody handles */
        return;
    }
    size_t text_len = 0;
    char *text = jeet_describe_exception(jeet_ctx, &text_len, NULL);
    if (text) jeet_write_stderr(text, text_len);
    jeet_die("\n");
}

/* Status of a jeet- export; the text of what was thrown waits in jeet-error. */
static JeetStatus finish(JeetStatus status) {
    heap_free((void *)(uintptr_t)error_text[0]);
    error_text[0] = error_text[1] = 0;
    if (status == JEET_OK) return status;
    bool interrupted;
    size_t len = 0;
    char *text = jeet_describe_exception(jeet_ctx, &len, &interrupted);
    error_text[0] = (uint32_t)(uintptr_t)text;
    error_text[1] = len;
    return interrupted ? JEET_INTERRUPTED : JEET_THREW;
}

JEET_EXPORT("jeet-compile") Result *jeet_compile(const char *source, size_t len, const char *name, size_t name_len) {
    char file[256];
    if (name_len >= sizeof file) name_len = sizeof file - 1;
    memcpy(file, name, name_len);
    file[name_len] = 0;
    return compile(source, len, file);
}

JEET_EXPORT("jeet-eval-module") JeetStatus jeet_eval_module(const uint8_t *bytecode, size_t len) {
    jeet_enter();
    JSModuleDef *module;
    JeetStatus status = evaluate(bytecode, len, &module);
    if (status == JEET_OK && !module) {
        throw_unsettled();
        status = JEET_THREW;
    }
    if (status == JEET_OK) {
        JSValue ns = JS_GetModuleNamespace(jeet_ctx, module);
        if (JS_IsException(ns))
            status = JEET_THREW;
        else
            jeet_set_namespace(jeet_ctx, ns);
    }
    return finish(status);
}

JEET_EXPORT("jeet-call") JeetStatus jeet_call(const char *name, size_t len) {
    jeet_enter();
    JSValue function = jeet_find_entry(jeet_ctx, name, len);
    JeetStatus status = JS_IsException(function) ? JEET_THREW : call(function);
    JS_FreeValue(jeet_ctx, function);
    return finish(status);
}

JEET_EXPORT("jeet-error") uint32_t *jeet_error(void) { return error_text; }

/* Gives the block, made by cabi_realloc, to an input slot; 1 if there is no such slot. */
JEET_EXPORT("jeet-input") uint32_t jeet_input(uint32_t slot, uint8_t *data, size_t len) {
    if (len == 0) data = heap_malloc(1);
    return jeet_set_input(slot, data, len) ? 0 : 1;
}

JEET_EXPORT("jeet-output") uint32_t *jeet_output_area(void) {
    static uint32_t area[2];
    size_t len;
    area[0] = (uint32_t)(uintptr_t)jeet_output(&len);
    area[1] = len;
    return area;
}

JEET_EXPORT("jeet-memory-limit") void jeet_memory_limit_export(size_t bytes) {
    jeet_enter();
    jeet_memory_set_limit(bytes);
}

JEET_EXPORT("jeet-host-stack") void jeet_host_stack(size_t bytes) {
    jeet_enter();
    jeet_set_host_stack(bytes);
}

JEET_EXPORT("jeet-memory-used") size_t jeet_memory_used_export(void) { return jeet_memory_used(); }

JEET_EXPORT("jeet-gc") void jeet_gc(void) {
    jeet_enter();
    JS_RunGC(jeet_rt);
}

JEET_EXPORT("jeet-version") const char *jeet_version(void) { return JS_GetVersion(); }
