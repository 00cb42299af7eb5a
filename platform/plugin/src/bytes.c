/* Areas of bytes, and the one frame that carries them to the host without a copy in JavaScript. */
#include "bytes.h"

#include <string.h>

#define KEPT_ROOM (256u * 1024)
#define MAX_AREAS 4096u
#define SENT_AT_ONCE 65536u /* a further write costs more than copying this much */

static JeetBytes **areas;
static uint32_t area_count;

bool jeet_bytes_grow(JSContext *ctx, JeetBytes *bytes, size_t more) {
    if (more > JEET_BYTES_LIMIT - bytes->len) {
        JS_ThrowOutOfMemory(ctx);
        return false;
    }
    size_t wanted = bytes->len + more, usual = bytes->room + bytes->room / 2 + 64;
    uint8_t *larger = js_realloc(ctx, bytes->data, wanted > usual ? wanted : usual);
    if (!larger) return false;
    bytes->data = larger;
    bytes->room = wanted > usual ? wanted : usual;
    return true;
}

void jeet_bytes_free(JSContext *ctx, JeetBytes *bytes) {
    js_free(ctx, bytes->data);
    *bytes = (JeetBytes){NULL, 0, 0};
}

void jeet_bytes_clear(JSContext *ctx, JeetBytes *bytes) {
    if (bytes->room > KEPT_ROOM)
        jeet_bytes_free(ctx, bytes);
    else
        bytes->len = 0;
}

bool jeet_bytes_line(JSContext *ctx, JeetBytes *bytes, const void *data, size_t len, bool first) {
    if (len >= JEET_BYTES_LIMIT) {
        JS_ThrowOutOfMemory(ctx);
        return false;
    }
    if (!jeet_bytes_reserve(ctx, bytes, len + 1)) return false;
    if (!first) bytes->data[bytes->len++] = '\n';
    if (len) memcpy(bytes->data + bytes->len, data, len);
    bytes->len += len;
    return true;
}

JeetBytes *jeet_area_new(JSContext *ctx, uint32_t *number) {
    if (area_count == MAX_AREAS) {
        JS_ThrowRangeError(ctx, "too many areas");
        return NULL;
    }
    if (area_count % 64 == 0) {
        JeetBytes **larger = js_realloc(ctx, areas, (area_count + 64) * sizeof *areas);
        if (!larger) return NULL;
        areas = larger;
    }
    JeetBytes *made = js_mallocz(ctx, sizeof *made);
    if (!made) return NULL;
    *number = area_count;
    areas[area_count++] = made;
    return made;
}

JeetBytes *jeet_area(uint32_t number) { return number < area_count ? areas[number] : NULL; }

void jeet_areas_reset(JSContext *ctx) {
    for (uint32_t i = 0; i < area_count; i++) {
        jeet_bytes_free(ctx, areas[i]);
        js_free(ctx, areas[i]);
    }
    js_free(ctx, areas);
    areas = NULL;
    area_count = 0;
}

/* A section of a frame: an Uint8Array, or the number of an area. */
static bool read_section(JSContext *ctx, JSValueConst sections, uint32_t i, const uint8_t **data, size_t *len) {
    JSValue section = JS_GetPropertyUint32(ctx, sections, i);
    if (JS_IsException(section)) return false;
    bool found = false;
    if (JS_VALUE_GET_TAG(section) == JS_TAG_INT) {
        const JeetBytes *area = jeet_area(JS_VALUE_GET_INT(section));
        if (area) {
            *data = area->data;
            *len = area->len;
            found = true;
        }
    } else if (JS_GetTypedArrayType(section) == JS_TYPED_ARRAY_UINT8) {
        *data = JS_GetUint8Array(ctx, len, section);
        found = *data || *len == 0;
    }
    JS_FreeValue(ctx, section); /* the array of sections still holds it */
    if (!found) JS_ThrowTypeError(ctx, "a section is an Uint8Array or the number of an area");
    return found;
}

static void put_u32(uint8_t *at, uint32_t value) { memcpy(at, &value, 4); }

/* sendAreas(op, sections): one frame (guest/wire.js says how it looks); what is small goes out in one write. */
JSValue jeet_send_areas(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    int32_t op;
    int64_t count;
    if (argc < 2) return JS_ThrowTypeError(ctx, "sendAreas needs a code and sections");
    if (JS_ToInt32(ctx, &op, argv[0]) < 0 || JS_GetLength(ctx, argv[1], &count) < 0) return JS_EXCEPTION;
    if (count < 0 || count > MAX_AREAS) return JS_ThrowRangeError(ctx, "a frame has at most %u sections", MAX_AREAS);
    const uint8_t *data = NULL;
    size_t len = 0, head = 12 + 4 * (size_t)count, total = head;
    for (uint32_t i = 0; i < count; i++) {
        if (!read_section(ctx, argv[1], i, &data, &len)) return JS_EXCEPTION;
        if (len > JEET_BYTES_LIMIT - total) return JS_ThrowOutOfMemory(ctx);
        total += len;
    }
    size_t room = total <= SENT_AT_ONCE ? total : head;
    uint8_t *message = js_malloc(ctx, room);
    if (!message) return JS_EXCEPTION;
    memcpy(message, "\0J", 2);
    message[2] = op;
    message[3] = 0;
    put_u32(message + 4, total - 8);
    put_u32(message + 8, count);
    size_t at = head;
    for (uint32_t i = 0; i < count; i++) {
        if (!read_section(ctx, argv[1], i, &data, &len)) goto failed;
        put_u32(message + 12 + 4 * i, len);
        if (room == total && len) memcpy(message + at, data, len);
        at += len;
    }
    if (jeet_write_all(2, message, room) < 0) goto refused;
    for (uint32_t i = 0; room != total && i < count; i++) {
        if (!read_section(ctx, argv[1], i, &data, &len)) goto failed;
        if (len && jeet_write_all(2, data, len) < 0) goto refused;
    }
    js_free(ctx, message);
    return JS_UNDEFINED;
refused:
    JS_ThrowPlainError(ctx, "fd_write failed");
failed:
    js_free(ctx, message);
    return JS_EXCEPTION;
}
