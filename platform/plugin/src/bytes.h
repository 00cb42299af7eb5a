/* Growing areas of bytes: what outputs and state are gathered in until the host takes them. Their memory counts as
 * JavaScript's own. An area may be reached from the driver by its number, so that it can be sent. */
#ifndef JEET_BYTES_H
#define JEET_BYTES_H

#include "plugin.h"

typedef struct {
    uint8_t *data;
    uint32_t len, room;
} JeetBytes;

#define JEET_BYTES_LIMIT 0x40000000u

bool jeet_bytes_grow(JSContext *ctx, JeetBytes *bytes, size_t more);
void jeet_bytes_clear(JSContext *ctx, JeetBytes *bytes); /* keeps a little room for the next time */
void jeet_bytes_free(JSContext *ctx, JeetBytes *bytes);
bool jeet_bytes_line(JSContext *ctx, JeetBytes *bytes, const void *data, size_t len, bool first); /* newline before all but the first */

/* Whether there is room for that many more; if not, the exception is pending. */
static inline bool jeet_bytes_reserve(JSContext *ctx, JeetBytes *bytes, size_t more) {
    return bytes->room - bytes->len >= more || jeet_bytes_grow(ctx, bytes, more);
}

/* Areas that can be sent: the number is for good, and so is the place. */
JeetBytes *jeet_area_new(JSContext *ctx, uint32_t *number);
JeetBytes *jeet_area(uint32_t number); /* NULL: none */
void jeet_areas_reset(JSContext *ctx);
JSValue jeet_send_areas(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv);

#endif
