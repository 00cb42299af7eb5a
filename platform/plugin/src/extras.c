/* Javy.Jeet: what a multi-tenant host needs beyond Javy. A driver takes what it wants of it and deletes `Javy` from the
 * global before user code runs; nothing here can be reached in another way. */
#include <string.h>

#include "bytes.h"
#include "columns.h"
#include "loop.h"
#include "state.h"
#include "plugin.h"

#define SLOTS 16

typedef struct {
    uint8_t *data;
    size_t len;
} Slot;

static Slot inputs[SLOTS];
static Slot output;
static JSValue entries = JS_UNDEFINED;   /* name -> function, an object without a prototype */
static JSValue namespace = JS_UNDEFINED; /* of the module that jeet-eval-module evaluated last */

void jeet_extras_reset(JSContext *ctx) {
    jeet_loop_reset(ctx);
    jeet_columns_reset(ctx);
    jeet_events_reset(ctx);
    jeet_json_reset(ctx);
    jeet_areas_reset(ctx);
    JS_FreeValue(ctx, entries);
    JS_FreeValue(ctx, namespace);
    entries = namespace = JS_UNDEFINED;
    for (int i = 0; i < SLOTS; i++) {
        heap_free(inputs[i].data);
        inputs[i] = (Slot){NULL, 0};
    }
    heap_free(output.data);
    output = (Slot){NULL, 0};
}

JSValue jeet_find_entry(JSContext *ctx, const char *name, size_t len) {
    JSAtom atom = JS_NewAtomLen(ctx, name, len);
    if (atom == JS_ATOM_NULL) return JS_EXCEPTION;
    JSValue found = JS_IsObject(entries) ? JS_GetProperty(ctx, entries, atom) : JS_UNDEFINED;
    if (JS_IsUndefined(found)) {
        JSValue global = JS_GetGlobalObject(ctx);
        found = JS_GetProperty(ctx, global, atom);
        JS_FreeValue(ctx, global);
    }
    JS_FreeAtom(ctx, atom);
    return found;
}

void jeet_set_namespace(JSContext *ctx, JSValue ns) {
    JSValue old = namespace;
    namespace = ns;
    JS_FreeValue(ctx, old);
}

bool jeet_set_input(uint32_t slot, uint8_t *data, size_t len) {
    if (slot >= SLOTS) return false;
    heap_free(inputs[slot].data);
    inputs[slot] = (Slot){data, len};
    return true;
}

const uint8_t *jeet_output(size_t *len) {
    *len = output.len;
    return output.data;
}

static JSValue drain_jobs(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value, (void)argc, (void)argv;
    int ran = jeet_run_jobs();
    return ran < 0 ? JS_EXCEPTION : JS_NewBool(ctx, ran > 0);
}

static JSValue take_rejection(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value, (void)argc, (void)argv;
    return jeet_take_rejection(ctx);
}

static JSValue collect(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value, (void)argc, (void)argv;
    JS_RunGC(JS_GetRuntime(ctx));
    return JS_UNDEFINED;
}

static JSValue memory_usage(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value, (void)argc, (void)argv;
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"used", jeet_memory_used()},
        {"peak", jeet_memory_peak()},
        {"limit", jeet_memory_limit()},
        {"refusals", jeet_memory_refusals()},
        {"linear", (double)__builtin_wasm_memory_size(0) * 65536},
    };
    JSValue report = JS_NewObject(ctx);
    if (JS_IsException(report)) return report;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (JS_DefinePropertyValueStr(ctx, report, figures[i].name, JS_NewNumber(ctx, figures[i].value), JS_PROP_C_W_E) < 0) {
            JS_FreeValue(ctx, report);
            return JS_EXCEPTION;
        }
    return report;
}

static JSValue set_deadline(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    double ms = 0;
    if (argc > 0 && JS_ToFloat64(ctx, &ms, argv[0]) < 0) return JS_EXCEPTION;
    jeet_set_deadline(ms);
    return JS_UNDEFINED;
}

static JSValue register_entry(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    if (argc < 2 || !JS_IsString(argv[0]) || !JS_IsFunction(ctx, argv[1]))
        return JS_ThrowTypeError(ctx, "register needs a name and a function");
    if (!JS_IsObject(entries)) {
        JSValue fresh = JS_NewObjectProto(ctx, JS_NULL);
        if (JS_IsException(fresh)) return fresh;
        entries = fresh;
    }
    JSAtom atom = JS_ValueToAtom(ctx, argv[0]);
    if (atom == JS_ATOM_NULL) return JS_EXCEPTION;
    int status = JS_DefinePropertyValue(ctx, entries, atom, JS_DupValue(ctx, argv[1]), JS_PROP_C_W_E);
    JS_FreeAtom(ctx, atom);
    return status < 0 ? JS_EXCEPTION : JS_UNDEFINED;
}

static JSValue get_namespace(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value, (void)argc, (void)argv;
    return JS_DupValue(ctx, namespace);
}

static JSValue get_input(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv, int as_bytes) {
    (void)this_value;
    uint32_t slot = SLOTS;
    if (argc > 0 && JS_ToUint32(ctx, &slot, argv[0]) < 0) return JS_EXCEPTION;
    if (slot >= SLOTS) return JS_ThrowRangeError(ctx, "there are %d input slots", SLOTS);
    if (!inputs[slot].data) return JS_UNDEFINED;
    if (as_bytes) return JS_NewUint8ArrayCopy(ctx, inputs[slot].data, inputs[slot].len);
    return JS_NewStringLen(ctx, (const char *)inputs[slot].data, inputs[slot].len);
}

/* Adds the text or the bytes to what the host reads with jeet-output. */
static JSValue add_output(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    size_t len = 0;
    const char *text = NULL;
    const uint8_t *data;
    if (argc > 0 && JS_GetTypedArrayType(argv[0]) == JS_TYPED_ARRAY_UINT8) {
        data = JS_GetUint8Array(ctx, &len, argv[0]);
    } else {
        text = JS_ToCStringLen(ctx, &len, argc > 0 ? argv[0] : JS_UNDEFINED);
        if (!text) return JS_EXCEPTION;
        data = (const uint8_t *)text;
    }
    size_t total = output.len + len;
    uint8_t *larger = total < len ? NULL : heap_realloc(output.data, total ? total : 1);
    if (larger) {
        if (len) memcpy(larger + output.len, data, len);
        output = (Slot){larger, total};
    }
    if (text) JS_FreeCString(ctx, text);
    return larger ? JS_NewNumber(ctx, total) : JS_ThrowOutOfMemory(ctx);
}

static JSValue clear_output(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)ctx, (void)this_value, (void)argc, (void)argv;
    heap_free(output.data);
    output = (Slot){NULL, 0};
    return JS_UNDEFINED;
}

static const JSCFunctionListEntry members[] = {
    JS_PROP_INT32_DEF("version", 1, JS_PROP_ENUMERABLE),
    JS_CFUNC_DEF("drainJobs", 0, drain_jobs),
    JS_CFUNC_DEF("takeRejection", 0, take_rejection),
    JS_CFUNC_DEF("gc", 0, collect),
    JS_CFUNC_DEF("memoryUsage", 0, memory_usage),
    JS_CFUNC_DEF("setDeadline", 1, set_deadline),
    JS_CFUNC_DEF("register", 2, register_entry),
    JS_CFUNC_DEF("namespace", 0, get_namespace),
    JS_CFUNC_MAGIC_DEF("input", 1, get_input, 0),
    JS_CFUNC_MAGIC_DEF("inputBytes", 1, get_input, 1),
    JS_CFUNC_DEF("output", 1, add_output),
    JS_CFUNC_DEF("clearOutput", 0, clear_output),
    JS_CFUNC_DEF("runEvents", 7, jeet_run_events),
    JS_CFUNC_DEF("takeResult", 0, jeet_take_result),
    JS_CFUNC_DEF("eventWords", 0, jeet_event_words),
    JS_CFUNC_DEF("stateTables", 1, jeet_state_tables),
};

int jeet_add_extras(JSContext *ctx, JSValueConst javy) {
    JSValue jeet = JS_NewObject(ctx);
    if (JS_IsException(jeet)) return -1;
    if (JS_SetPropertyFunctionList(ctx, jeet, members, sizeof members / sizeof *members) < 0 ||
        JS_SetPropertyFunctionList(ctx, jeet, jeet_event_members, jeet_event_member_count) < 0 ||
        JS_SetPropertyFunctionList(ctx, jeet, jeet_column_members, jeet_column_member_count) < 0)
        return -1;
    return JS_DefinePropertyValueStr(ctx, javy, "Jeet", jeet, JS_PROP_C_W_E);
}
