/* The outputs of a batch. */
#ifndef JEET_COLUMNS_H
#define JEET_COLUMNS_H

#include "events.h"
#include "json.h"

typedef struct {
    uint32_t limit;     /* bytes of one value */
    uint32_t depth;     /* levels of nesting */
    uint32_t key_limit; /* bytes of a key */
} JeetRules;

/* Adds the value to the column of that number; the bytes added. Unless it answers JEET_WROTE, nothing has been added. */
JeetWriting jeet_column_add(JSContext *ctx, uint32_t column, uint32_t event, JSValueConst value, const JeetRules *rules, uint32_t *bytes);
void jeet_columns_reset(JSContext *ctx);
extern const JSCFunctionListEntry jeet_column_members[];
extern const int jeet_column_member_count;

#endif
