/* The loop over a batch's events for most functions: one handler, which takes no context and starts no jobs, and whose
 * result goes to the sink. What is unusual it leaves in the middle: guest/batch.js does that event, and calls again. */
#include "loop.h"

#include "columns.h"
#include "event.h"
#include "events.h"
#include "state.h"

#define MAX_TEXT 4194304.0 /* of outputs and state: past it the batch ends early; guest/outputs.js has the same */

static JSValue pending = JS_UNDEFINED; /* the result of an event that was left in the middle */

void jeet_loop_reset(JSContext *ctx) {
    JS_FreeValue(ctx, pending);
    pending = JS_UNDEFINED;
}

typedef enum { DONE, LEFT, THREW } Outcome;

/* The event has run; what it returned is an output, or nothing. Takes the result. */
static Outcome take_result(JSContext *ctx, uint32_t event, JSValue result, int32_t column, const JeetRules *rules) {
    JeetWriting done = jeet_event.lives == 0 ? JEET_WROTE : jeet_state_settle(ctx, rules->depth);
    if (done == JEET_WROTE && column >= 0 && !JS_IsUndefined(result) && !JS_IsNull(result)) {
        uint32_t bytes = 0;
        done = jeet_column_add(ctx, column, event, result, rules, &bytes);
        jeet_event.text_length += bytes;
    }
    if (done == JEET_UNUSUAL || done == JEET_REFUSED) {
        pending = result;
        return LEFT;
    }
    JS_FreeValue(ctx, result);
    if (done == JEET_NO_MEMORY) return THREW;
    if (jeet_event.changes != 0 || jeet_event.lives != 0) jeet_state_keep(ctx);
    jeet_event.serial = 0;
    return DONE;
}

static Outcome run_event(JSContext *ctx, JSValueConst handler, uint32_t event, int32_t column, const JeetRules *rules) {
    jeet_event_begin(event);
    JSValue value = jeet_event_value(ctx, event);
    if (JS_IsException(value)) return THREW;
    if (JS_IsUndefined(value)) {
        jeet_event.serial = 0;
        return LEFT;
    }
    JSValueConst arguments[] = {value};
    JSValue result = JS_Call(ctx, handler, JS_UNDEFINED, 1, arguments);
    JS_FreeValue(ctx, value);
    return JS_IsException(result) ? THREW : take_result(ctx, event, result, column, rules);
}

/* runEvents(handler, column or -1, first, end, limit, depth, key limit) -> the first event that is not done. If it is the running
 * one, its result waits in takeResult(), else the driver is to run it. An error is that of the running event. */
JSValue jeet_run_events(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    int32_t column;
    uint32_t event, end;
    JeetRules rules;
    if (argc < 7) return JS_ThrowTypeError(ctx, "runEvents needs 7 arguments");
    if (JS_ToInt32(ctx, &column, argv[1]) < 0 || JS_ToUint32(ctx, &event, argv[2]) < 0 || JS_ToUint32(ctx, &end, argv[3]) < 0 ||
        JS_ToUint32(ctx, &rules.limit, argv[4]) < 0 || JS_ToUint32(ctx, &rules.depth, argv[5]) < 0 ||
        JS_ToUint32(ctx, &rules.key_limit, argv[6]) < 0)
        return JS_EXCEPTION;
    jeet_loop_reset(ctx);
    for (; event < end; event++) {
        jeet_event.progress = event;
        if ((jeet_event.stop != 0 || jeet_event.text_length > MAX_TEXT) && event > 0) break;
        Outcome outcome = run_event(ctx, argv[0], event, column, &rules);
        if (outcome == THREW) return JS_EXCEPTION;
        if (outcome == LEFT) break;
    }
    return JS_NewUint32(ctx, event);
}

JSValue jeet_take_result(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)ctx, (void)this_value, (void)argc, (void)argv;
    JSValue result = pending;
    pending = JS_UNDEFINED;
    return result;
}
