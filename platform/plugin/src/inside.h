/* What the plugin's own C sees of the inside of QuickJS's values, where the public interface is too slow for each value of each
 * event: views, good until JavaScript runs or the object changes, and a few ways to build. None of it runs JavaScript.
 * inside_quickjs.h, which adapt_quickjs.py makes the end of quickjs.c, holds the other side and the assertions. */
#ifndef JEET_INSIDE_H
#define JEET_INSIDE_H

#include "plugin.h"

typedef struct {
    const void *units; /* uint16_t if wide, else uint8_t: Latin-1 */
    uint32_t len;
    bool wide;
} JeetText;

typedef struct {
    uint32_t link_and_flags;
    JSAtom atom; /* JS_ATOM_NULL: a deleted property */
} JeetName;

#define JEET_NAME_FLAGS(name) ((name)->link_and_flags >> 26) /* JS_PROP_… */
#define JEET_ATOM_IS_INTEGER(atom) ((int32_t)(atom) < 0)

typedef enum {
    JEET_EXOTIC, /* anything else */
    JEET_PLAIN,  /* an object of Object.prototype or of no prototype, all of whose properties are in the view */
    JEET_DENSE,  /* an array of Array.prototype without holes or further properties */
} JeetKind;

typedef struct {
    const JeetName *names; /* of a plain object, in order of insertion */
    const JSValue *values; /* of a property only if (flags & JS_PROP_TMASK) == 0 */
    uint32_t count;
} JeetView;

JeetKind jeet_view(JSContext *ctx, JSValueConst object, JeetView *view);
const JSValue *jeet_own_value(JSValueConst plain, JSAtom atom); /* of a plain object, or NULL: none, or an accessor */
bool jeet_json_is_plain(JSContext *ctx); /* no prototype of plain objects and dense arrays says how they become JSON */
bool jeet_is_to_json(JSAtom atom);
JeetText jeet_text(JSValueConst string);                               /* of a value of JS_TAG_STRING */
uint32_t jeet_rope_length(JSValueConst rope);                          /* of a value of JS_TAG_STRING_ROPE */
bool jeet_atom_text(JSContext *ctx, JSAtom atom, JeetText *text);      /* false: an integer or a symbol */
JSValue jeet_new_latin1(JSContext *ctx, const uint8_t *units, uint32_t len);
JSValue jeet_new_utf16(JSContext *ctx, const uint16_t *units, uint32_t len);
JSAtom jeet_find_atom(JSContext *ctx, JSValue string);                 /* takes the string */
int jeet_define(JSContext *ctx, JSValueConst fresh, JSAtom atom, JSValue value); /* on an object that only we know */
int jeet_push(JSContext *ctx, JSValueConst fresh, JSValue value);      /* to an array that only we know */

#endif
