/* The outputs of a batch: a column for each declared stream, in areas of bytes that the host reads as they are.
 *
 * A column says nothing of sources while event i made exactly value i, and nothing of keys while each is its event's key.
 * A row is there whole or not at all. guest/outputs.js has the same in JavaScript. */
#include "columns.h"

#include <string.h>

#define MAX_COLUMNS 1024u
#define MAX_INTEGER 9007199254740991.0

typedef struct {
    JeetBytes *values, *keys, *sources; /* sources: a u32 each */
    uint32_t areas[3];                  /* their numbers */
    JeetBytes starts;                   /* where each value starts, and each key: two u32 for a row */
    uint32_t count;
    bool has_keys, has_sources;
    JSAtom field; /* of the value, which holds its key; JS_ATOM_NULL: none */
} Column;

static Column *columns;
static uint32_t column_count;

void jeet_columns_reset(JSContext *ctx) {
    for (uint32_t i = 0; i < column_count; i++) {
        jeet_bytes_free(ctx, &columns[i].starts);
        JS_FreeAtom(ctx, columns[i].field);
    }
    js_free(ctx, columns);
    columns = NULL;
    column_count = 0;
}

static void put_u32(JeetBytes *bytes, uint32_t value) {
    memcpy(bytes->data + bytes->len, &value, 4);
    bytes->len += 4;
}

static uint32_t u32_at(const JeetBytes *bytes, uint32_t index) {
    uint32_t value;
    memcpy(&value, bytes->data + 4 * index, 4);
    return value;
}

static void set_u32(JeetBytes *bytes, uint32_t index, uint32_t value) { memcpy(bytes->data + 4 * index, &value, 4); }

/* From here on the column says which event made each value. */
static bool explain_sources(JSContext *ctx, Column *column) {
    if (!jeet_bytes_reserve(ctx, column->sources, 4 * (size_t)column->count)) return false;
    for (uint32_t i = 0; i < column->count; i++) put_u32(column->sources, i);
    column->has_sources = true;
    return true;
}

static uint32_t source_of(const Column *column, uint32_t row) { return column->has_sources ? u32_at(column->sources, row) : row; }

/* From here on the column says the key of each value. */
static bool explain_keys(JSContext *ctx, Column *column) {
    for (uint32_t i = 0; i < column->count; i++) {
        JeetLine key = jeet_event_key(source_of(column, i));
        set_u32(&column->starts, 2 * i + 1, column->keys->len);
        if (!jeet_bytes_line(ctx, column->keys, key.at, key.len, i == 0)) {
            column->keys->len = 0;
            return false;
        }
    }
    column->has_keys = true;
    return true;
}

/* Room for all that a row needs beside its value and its own key; false with the exception pending. */
static bool prepare(JSContext *ctx, Column *column, uint32_t event, bool keyed) {
    if (!jeet_bytes_reserve(ctx, &column->starts, 8)) return false;
    if (!column->has_sources && column->count != event && !explain_sources(ctx, column)) return false;
    if (column->has_sources && !jeet_bytes_reserve(ctx, column->sources, 4)) return false;
    return !keyed || column->has_keys || explain_keys(ctx, column);
}

/* The row is complete but for its places: nothing here can fail. */
static void finish_row(Column *column, uint32_t event, uint32_t value_start, uint32_t key_start) {
    put_u32(&column->starts, value_start);
    put_u32(&column->starts, key_start);
    if (column->has_sources) put_u32(column->sources, event);
    column->count++;
}

static bool add_event_key(JSContext *ctx, Column *column, uint32_t event) {
    if (!column->has_keys) return true;
    JeetLine key = jeet_event_key(event);
    return jeet_bytes_line(ctx, column->keys, key.at, key.len, column->count == 0);
}

/* The key that the value itself names, as JSON text. */
static JeetWriting add_field_key(JSContext *ctx, Column *column, JSValueConst value, uint32_t key_limit) {
    if (!JS_IsObject(value)) return JEET_UNUSUAL;
    JeetView view;
    const JSValue *found = jeet_view(ctx, value, &view) == JEET_PLAIN ? jeet_own_value(value, column->field) : NULL;
    if (!found) return JEET_UNUSUAL;
    if (!jeet_bytes_reserve(ctx, column->keys, 32)) return JEET_NO_MEMORY;
    if (column->count > 0) column->keys->data[column->keys->len++] = '\n';
    if (JS_IsNumber(*found)) {
        double number;
        JS_ToFloat64(ctx, &number, *found);
        if (!(number <= MAX_INTEGER && number >= -MAX_INTEGER) || number != (double)(int64_t)number) return JEET_UNUSUAL;
        column->keys->data[column->keys->len++] = '"';
        if (!jeet_json_write_number(ctx, column->keys, number) || !jeet_bytes_reserve(ctx, column->keys, 1)) return JEET_NO_MEMORY;
        column->keys->data[column->keys->len++] = '"';
        return JEET_WROTE;
    }
    if (JS_VALUE_GET_TAG(*found) != JS_TAG_STRING || jeet_text(*found).len > key_limit / 3) return JEET_UNUSUAL;
    return jeet_json_write(ctx, column->keys, *found, 6 * (size_t)key_limit + 2, 0);
}

static JeetWriting add_row(JSContext *ctx, Column *column, uint32_t event, JSValueConst value, const JeetRules *rules) {
    bool keyed = column->field != JS_ATOM_NULL;
    if (!prepare(ctx, column, event, keyed) || !jeet_bytes_reserve(ctx, column->values, 1)) return JEET_NO_MEMORY;
    uint32_t value_start = column->values->len, key_start = column->keys->len;
    if (column->count > 0) column->values->data[column->values->len++] = '\n';
    JeetWriting done = jeet_json_write(ctx, column->values, value, rules->limit, rules->depth);
    if (done == JEET_WROTE) {
        if (keyed)
            done = add_field_key(ctx, column, value, rules->key_limit);
        else if (!add_event_key(ctx, column, event))
            done = JEET_NO_MEMORY;
    }
    if (done == JEET_WROTE) {
        finish_row(column, event, value_start, key_start);
    } else {
        column->values->len = value_start;
        column->keys->len = key_start;
    }
    return done;
}

static int add_text_row(JSContext *ctx, Column *column, uint32_t event, JeetLine value, const JeetLine *key) {
    if (!prepare(ctx, column, event, key != NULL)) return -1;
    uint32_t value_start = column->values->len, key_start = column->keys->len;
    bool first = column->count == 0;
    if (!jeet_bytes_line(ctx, column->values, value.at, value.len, first)) return -1;
    if (key ? !jeet_bytes_line(ctx, column->keys, key->at, key->len, first) : !add_event_key(ctx, column, event)) {
        column->values->len = value_start;
        column->keys->len = key_start;
        return -1;
    }
    finish_row(column, event, value_start, key_start);
    return 0;
}

static Column *column_of(JSContext *ctx, int argc, JSValueConst *argv, int needed) {
    uint32_t number;
    if (argc < needed) {
        JS_ThrowTypeError(ctx, "%d arguments are needed", needed);
        return NULL;
    }
    if (JS_ToUint32(ctx, &number, argv[0]) < 0) return NULL;
    if (number < column_count) return &columns[number];
    JS_ThrowRangeError(ctx, "no such column");
    return NULL;
}

/* newColumn(field or undefined) -> number */
static JSValue new_column(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    if (column_count == MAX_COLUMNS) return JS_ThrowRangeError(ctx, "too many columns");
    Column *larger = js_realloc(ctx, columns, (column_count + 1) * sizeof *larger);
    if (!larger) return JS_EXCEPTION;
    columns = larger;
    Column made = {.field = JS_ATOM_NULL};
    if (!(made.values = jeet_area_new(ctx, &made.areas[0])) || !(made.keys = jeet_area_new(ctx, &made.areas[1])) ||
        !(made.sources = jeet_area_new(ctx, &made.areas[2])))
        return JS_EXCEPTION;
    if (argc > 0 && JS_IsString(argv[0]) && (made.field = JS_ValueToAtom(ctx, argv[0])) == JS_ATOM_NULL) return JS_EXCEPTION;
    columns[column_count] = made;
    return JS_NewUint32(ctx, column_count++);
}

JeetWriting jeet_column_add(JSContext *ctx, uint32_t column, uint32_t event, JSValueConst value, const JeetRules *rules, uint32_t *bytes) {
    if (column >= column_count) return JEET_UNUSUAL;
    uint32_t before = columns[column].values->len;
    JeetWriting done = add_row(ctx, &columns[column], event, value, rules);
    *bytes = columns[column].values->len - before;
    return done;
}

/* putRow(column, event, value, limit, depth, key limit) -> bytes, or why not: JeetWriting */
static JSValue put_row(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    Column *column = column_of(ctx, argc, argv, 6);
    uint32_t event, bytes;
    JeetRules rules;
    if (!column || JS_ToUint32(ctx, &event, argv[1]) < 0 || JS_ToUint32(ctx, &rules.limit, argv[3]) < 0 ||
        JS_ToUint32(ctx, &rules.depth, argv[4]) < 0 || JS_ToUint32(ctx, &rules.key_limit, argv[5]) < 0)
        return JS_EXCEPTION;
    JeetWriting done = jeet_column_add(ctx, column - columns, event, argv[2], &rules, &bytes);
    if (done == JEET_NO_MEMORY) return JS_EXCEPTION;
    return JS_NewInt32(ctx, done == JEET_WROTE ? (int32_t)bytes : done);
}

/* putText(column, event, JSON text, JSON text of the key or undefined: the event's) -> bytes */
static JSValue put_text(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    Column *column = column_of(ctx, argc, argv, 4);
    uint32_t event;
    size_t value_len = 0, key_len = 0;
    if (!column || JS_ToUint32(ctx, &event, argv[1]) < 0) return JS_EXCEPTION;
    const char *value = JS_ToCStringLen(ctx, &value_len, argv[2]);
    bool keyed = !JS_IsUndefined(argv[3]);
    const char *key = value && keyed ? JS_ToCStringLen(ctx, &key_len, argv[3]) : NULL;
    int status = -1;
    if (value && (key || !keyed)) {
        JeetLine key_line = {(const uint8_t *)key, key_len};
        status = add_text_row(ctx, column, event, (JeetLine){(const uint8_t *)value, value_len}, keyed ? &key_line : NULL);
    }
    if (key) JS_FreeCString(ctx, key);
    if (value) JS_FreeCString(ctx, value);
    return status < 0 ? JS_EXCEPTION : JS_NewUint32(ctx, value_len);
}

/* popRow(column): the last row is no more. */
static JSValue pop_row(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    Column *column = column_of(ctx, argc, argv, 1);
    if (!column) return JS_EXCEPTION;
    if (column->count == 0) return JS_ThrowRangeError(ctx, "the column is empty");
    uint32_t last = --column->count;
    column->values->len = u32_at(&column->starts, 2 * last);
    if (column->has_keys) column->keys->len = u32_at(&column->starts, 2 * last + 1);
    if (column->has_sources) column->sources->len -= 4;
    column->starts.len -= 8;
    return JS_UNDEFINED;
}

/* takeColumn(column, events) -> [rows, area of values, area of keys or -1, area of sources or -1] */
static JSValue take_column(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    Column *column = column_of(ctx, argc, argv, 2);
    uint32_t events;
    if (!column || JS_ToUint32(ctx, &events, argv[1]) < 0) return JS_EXCEPTION;
    if (!column->has_sources && column->count != events && !explain_sources(ctx, column)) return JS_EXCEPTION;
    JSValue found[4] = {
        JS_NewUint32(ctx, column->count),
        JS_NewUint32(ctx, column->areas[0]),
        JS_NewInt32(ctx, column->has_keys ? (int32_t)column->areas[1] : -1),
        JS_NewInt32(ctx, column->has_sources ? (int32_t)column->areas[2] : -1),
    };
    return JS_NewArrayFrom(ctx, 4, found);
}

static JSValue clear_column(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    Column *column = column_of(ctx, argc, argv, 1);
    if (!column) return JS_EXCEPTION;
    jeet_bytes_clear(ctx, column->values);
    jeet_bytes_clear(ctx, column->keys);
    jeet_bytes_clear(ctx, column->sources);
    jeet_bytes_clear(ctx, &column->starts);
    column->count = 0;
    column->has_keys = column->has_sources = false;
    return JS_UNDEFINED;
}

/* jsonText(value, limit, depth) -> text, or why not: JeetWriting */
static JSValue json_text(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    static JeetBytes scratch; /* writing runs no JavaScript, so nobody else is in it */
    uint32_t limit, depth;
    if (argc < 3) return JS_ThrowTypeError(ctx, "jsonText needs a value, a limit and a depth");
    if (JS_ToUint32(ctx, &limit, argv[1]) < 0 || JS_ToUint32(ctx, &depth, argv[2]) < 0) return JS_EXCEPTION;
    JeetWriting done = jeet_json_write(ctx, &scratch, argv[0], limit, depth);
    JSValue text = done == JEET_WROTE       ? JS_NewStringLen(ctx, (const char *)scratch.data, scratch.len)
                   : done == JEET_NO_MEMORY ? JS_EXCEPTION
                                            : JS_NewInt32(ctx, done);
    jeet_bytes_free(ctx, &scratch);
    return text;
}

const JSCFunctionListEntry jeet_column_members[] = {
    JS_CFUNC_DEF("newColumn", 1, new_column), JS_CFUNC_DEF("putRow", 6, put_row),         JS_CFUNC_DEF("putText", 4, put_text),
    JS_CFUNC_DEF("popRow", 1, pop_row),       JS_CFUNC_DEF("takeColumn", 2, take_column), JS_CFUNC_DEF("clearColumn", 1, clear_column),
    JS_CFUNC_DEF("jsonText", 3, json_text),   JS_CFUNC_DEF("sendAreas", 2, jeet_send_areas),
};
const int jeet_column_member_count = sizeof jeet_column_members / sizeof *jeet_column_members;
