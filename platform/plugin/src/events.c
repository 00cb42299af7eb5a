/* A batch's columns of lines. They are copied out of JavaScript's hands: what the host sends next reuses the same buffer. */
#include "events.h"

#include <string.h>

#include "json.h"

typedef struct {
    uint8_t *data;
    uint32_t *starts; /* of each line, and one more: where a further line would start */
    uint32_t count;
} Lines;

static Lines values, keys;

static void drop(JSContext *ctx, Lines *lines) {
    js_free(ctx, lines->data);
    js_free(ctx, lines->starts);
    *lines = (Lines){NULL, NULL, 0};
}

void jeet_events_reset(JSContext *ctx) {
    drop(ctx, &values);
    drop(ctx, &keys);
}

/* Takes a copy of the lines, each followed by a NUL; an empty column has none. */
static int take(JSContext *ctx, JSValueConst value, Lines *lines) {
    size_t len = 0;
    drop(ctx, lines);
    if (JS_GetTypedArrayType(value) != JS_TYPED_ARRAY_UINT8) {
        JS_ThrowTypeError(ctx, "a column is an Uint8Array");
        return -1;
    }
    const uint8_t *data = JS_GetUint8Array(ctx, &len, value);
    if (!data && len) return -1;
    if (len == 0) return 0;
    uint32_t count = 1;
    for (const uint8_t *p = data, *end = data + len; (p = memchr(p, '\n', end - p)); p++) count++;
    lines->data = js_malloc(ctx, len + 1);
    lines->starts = lines->data ? js_malloc(ctx, (count + 1) * sizeof *lines->starts) : NULL;
    if (!lines->starts) {
        drop(ctx, lines);
        return -1;
    }
    memcpy(lines->data, data, len);
    lines->data[len] = '\n';
    uint32_t *start = lines->starts;
    *start++ = 0;
    for (uint8_t *p = lines->data, *end = p + len; p <= end && (p = memchr(p, '\n', end + 1 - p)); p++) {
        *p = 0;
        *start++ = p + 1 - lines->data;
    }
    lines->count = count;
    return 0;
}

static JeetLine line_at(const Lines *lines, uint32_t index) {
    return (JeetLine){lines->data + lines->starts[index], lines->starts[index + 1] - lines->starts[index] - 1};
}

JeetLine jeet_event_key(uint32_t index) {
    if (index < keys.count) return line_at(&keys, index);
    return (JeetLine){(const uint8_t *)"null", 4};
}

JSValue jeet_event_value(JSContext *ctx, uint32_t index) {
    if (index >= values.count) return JS_UNDEFINED;
    JeetLine line = line_at(&values, index);
    return jeet_json_parse(ctx, line.at, line.len);
}

/* openEvents(values, keys) */
static JSValue open_events(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    if (argc < 2) return JS_ThrowTypeError(ctx, "openEvents needs two columns");
    return take(ctx, argv[0], &values) < 0 || take(ctx, argv[1], &keys) < 0 ? JS_EXCEPTION : JS_UNDEFINED;
}

/* parseEvent(index) -> value, or undefined: its text is for JSON.parse to judge */
static JSValue parse_event(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    uint32_t index;
    if (argc < 1) return JS_ThrowTypeError(ctx, "parseEvent needs an index");
    return JS_ToUint32(ctx, &index, argv[0]) < 0 ? JS_EXCEPTION : jeet_event_value(ctx, index);
}

static JSValue close_events(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value, (void)argc, (void)argv;
    jeet_events_reset(ctx);
    return JS_UNDEFINED;
}

const JSCFunctionListEntry jeet_event_members[] = {
    JS_CFUNC_DEF("openEvents", 2, open_events),
    JS_CFUNC_DEF("parseEvent", 1, parse_event),
    JS_CFUNC_DEF("closeEvents", 0, close_events),
};
const int jeet_event_member_count = sizeof jeet_event_members / sizeof *jeet_event_members;
