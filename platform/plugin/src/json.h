/* JSON in C: what events are read by, and what leaves them is written by. Neither side runs JavaScript. */
#ifndef JEET_JSON_H
#define JEET_JSON_H

#include "bytes.h"
#include "inside.h"

typedef enum {
    JEET_WROTE = 0,
    JEET_UNUSUAL = -1,   /* not for this writer: accessors, toJSON, classes, proxies, names that are indexes */
    JEET_REFUSED = -2,   /* something in it is no strict JSON, or too long: guest/strict.js says what and where */
    JEET_NO_MEMORY = -3, /* the exception is pending */
} JeetWriting;

/* Adds the value as strict JSON text of at most `limit` bytes, by the rules of guest/strict.js and with the bytes of
 * JSON.stringify; unless it answers JEET_WROTE, nothing has been added. */
JeetWriting jeet_json_write(JSContext *ctx, JeetBytes *out, JSValueConst value, size_t limit, uint32_t depth);
bool jeet_json_write_number(JSContext *ctx, JeetBytes *out, double value); /* finite; as JavaScript writes it */

/* The value of a text that ends with a NUL at `len`, as JSON.parse makes it; JS_UNDEFINED if it gives up: JSON.parse decides. */
JSValue jeet_json_parse(JSContext *ctx, const uint8_t *text, uint32_t len);
void jeet_json_reset(JSContext *ctx);

#endif
