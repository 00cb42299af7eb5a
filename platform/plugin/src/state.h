/* Keyed state: the tables of entries under `state.<collection>`. guest/table.js is the same in JavaScript. */
#ifndef JEET_STATE_H
#define JEET_STATE_H

#include "event.h"
#include "json.h"

JSValue jeet_state_tables(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv);
void jeet_state_reset(JSContext *ctx);

/* Live objects become text, as settleLives() of guest/state.js makes them. Unless it answers JEET_WROTE, that is to be called:
 * it may go over them again. An object's text is one of an object or an array, as the writer follows no toJSON. */
JeetWriting jeet_state_settle(JSContext *ctx, uint32_t depth);

/* The end of an event whose live objects are settled: what it changed stays. Cannot fail. */
void jeet_state_keep(JSContext *ctx);

/* Called by quickjs.c (adapt_quickjs.py). A collection refuses both, by the driver's words. */
bool jeet_is_collection(JSContext *ctx, JSValueConst object);
int jeet_refuse_prototype(JSContext *ctx, JSValueConst object);
int jeet_refuse_preventing(JSContext *ctx, JSValueConst object);

#endif
