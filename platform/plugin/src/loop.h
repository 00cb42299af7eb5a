/* The loop over events. */
#ifndef JEET_LOOP_H
#define JEET_LOOP_H

#include "plugin.h"

JSValue jeet_run_events(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv);
JSValue jeet_take_result(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv);
void jeet_loop_reset(JSContext *ctx);

#endif
