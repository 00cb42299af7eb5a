/* The running event and its batch: one struct in linear memory, which the driver and the host see as the same 64-bit floats.
 *
 * The driver's words (guest/wire.js) are a Float64Array over it, so C, JavaScript and host agree without a call. User
 * code has no way to that array. Numbers are whole and below 2^53; times are in milliseconds since the epoch. */
#ifndef JEET_EVENT_H
#define JEET_EVENT_H

#include "plugin.h"

typedef struct {
    double progress;    /* index of the event that runs, for the host; the host reads it at any time */
    double stop;        /* written by the host: not 0: end the batch after this event */
    double time;        /* written by the host: database time, at most one tick old */
    double proof;       /* shows that the host sees these very words */
    double serial;      /* of the running event; 0: none runs, and state may not be used */
    double serials;     /* the last serial that was given */
    double index;       /* of the running event in its batch */
    double batch;       /* number of this batch */
    double committed;   /* the last batch known to be committed */
    double batch_time;  /* database time at the start of this batch */
    double text_length; /* of this batch's outputs and state; past the bound the batch ends early */
    double careful;     /* not 0: each text is checked in the guest and not left to the host */
    double value_limit; /* bytes of a value of state */
    double key_limit;   /* bytes of a key */
    double changes;     /* not 0: the event changed state, and it is to be kept or undone (state.c) */
    double lives;       /* how many objects of state the event has in hand; each becomes text when it ends */
    double event_time;  /* database time as the event event_time_of sees it */
    double event_time_of;
    double exact_time_of; /* the event for which the host was asked */
    double spare[5];
} JeetEvent;

/* volatile: the host writes stop and time while C runs. */
extern volatile JeetEvent jeet_event;

void jeet_event_reset(void);
JSValue jeet_event_words(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv);

/* The start of an event: state may be used until serial is 0 again. */
static inline void jeet_event_begin(uint32_t index) {
    jeet_event.progress = index;
    jeet_event.index = index;
    jeet_event.serial = jeet_event.serials = jeet_event.serials + 1;
}

#endif
