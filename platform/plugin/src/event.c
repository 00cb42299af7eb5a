/* The words of the running event, handed to the driver as a Float64Array. */
#include <string.h>

#include "event.h"

_Static_assert(sizeof(JeetEvent) == 24 * sizeof(double), "guest/wire.js and frames.py count the words");

volatile JeetEvent jeet_event;

void jeet_event_reset(void) { memset((void *)&jeet_event, 0, sizeof jeet_event); }

JSValue jeet_event_words(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value, (void)argc, (void)argv;
    JSValue buffer = JS_NewArrayBuffer(ctx, (uint8_t *)&jeet_event, sizeof jeet_event, 0, NULL, NULL, false);
    if (JS_IsException(buffer)) return buffer;
    JSValueConst arguments[] = {buffer};
    JSValue words = JS_NewTypedArray(ctx, 1, arguments, JS_TYPED_ARRAY_FLOAT64);
    JS_FreeValue(ctx, buffer);
    return words;
}
