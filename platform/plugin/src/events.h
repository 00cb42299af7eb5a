/* The events of the batch that runs, as the bytes the host sent: lines are found at once and read when asked for. */
#ifndef JEET_EVENTS_H
#define JEET_EVENTS_H

#include "plugin.h"

typedef struct {
    const uint8_t *at;
    uint32_t len;
} JeetLine;

/* The event itself, parsed afresh; JS_UNDEFINED: its text is for JSON.parse to judge. */
JSValue jeet_event_value(JSContext *ctx, uint32_t index);

/* The text of an event's key: `null` if the batch has no keys. */
JeetLine jeet_event_key(uint32_t index);
void jeet_events_reset(JSContext *ctx);
extern const JSCFunctionListEntry jeet_event_members[];
extern const int jeet_event_member_count;

#endif
