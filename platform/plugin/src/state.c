/* Keyed state in C: tables of entries, the objects that user code sees as `state.<collection>`, and the undo of an event.
 *
 * Promise: after an event that fails, state is as before it; expired values are never seen; user code reaches no entry. An
 * allocation that fails leaves no half change: what may fail comes first, plain assignments come last.
 *
 * A collection object does by itself what is common: reading a known entry, writing a number, string or boolean. For all
 * else it calls the functions of guest/collection.js, which use entries through the functions and read-only accessors
 * below. guest/table.js does the same for plugins without this file, and says what the kinds of entries are.
 *
 * Keys are atoms: an entry holds its own, so that a string finds it by its contents without a copy. Tables live as long as
 * the runtime. Lists of entries borrow them: an entry leaves its table only in evict(), when no list has it; the objects by
 * which the driver sees an entry hold it. Values and live objects are held from outside the graph that the cycle collector
 * sees: values cannot be part of a cycle, and live objects are let go when their event ends. */
#include <math.h>
#include <string.h>

#include "charge.h"
#include "state.h"

enum { UNKNOWN, ABSENT, PLAIN, TEXT };

#define MAX_INTEGER 9007199254740991.0
#define EXACT_TIME_MARGIN_MS 60.0 /* as in guest/entries.js */
#define LIMIT 0x10000000u         /* of bytes and of elements of a list */

typedef struct Table Table;

typedef struct {
    Table *table;
    JSAtom key;
    uint32_t refs; /* of its table and of the object by which the driver sees it */
    uint8_t kind;
    bool quoted;   /* its key's JSON text is the key in quotes: ASCII without escapes */
    bool saved;    /* is in the undo list */
    bool live_now; /* is in the list of lives */
    bool assigned; /* the live object was assigned in this event */
    uint32_t changed_in, touched_in, used_in, sent_in; /* batches; touched: only the expiry was moved */
    int32_t changed_by; /* index of the event of the last change */
    uint32_t size;      /* what the cache counts for it */
    double expires;     /* NaN: never */
    JSValue value;      /* PLAIN: the value; TEXT: its JSON text */
    JSValue live;       /* the object handed out in this event, or undefined */
    JSValue key_text;   /* unless quoted */
    void *object;       /* by which the driver sees it, if there is one; not held */
} Entry;

typedef struct {
    Entry **items;
    uint32_t count, room;
} List;

struct Table {
    JSValue owner, object;
    double ttl; /* NaN: none */
    bool by_access;
    Entry **slots; /* open addressing by key; a power of two, at most half full */
    uint32_t mask;
    List entries; /* in the order in which they came */
    List changed, touched; /* in this batch */
    List recent;           /* in batches not known to be committed */
};

typedef struct {
    Entry *entry;
    JSValue value;
    double expires;
    uint32_t changed_in, touched_in;
    uint8_t kind;
} Saved;

typedef struct {
    uint8_t *data;
    uint32_t len, room;
} Bytes;

enum { GET, SET, HAS, DELETE, KEYS, DEFINE, REFUSE_PROTOTYPE, REFUSE_PREVENTING, TRAPS };
static const char *const trap_names[TRAPS] = {"get", "set", "has", "deleteProperty", "ownKeys", "define", "setPrototypeOf", "preventExtensions"};

static JSClassID collection_class, table_class, entry_class;
static JSValue traps[TRAPS];
static bool has_traps;

static Table **tables;
static uint32_t table_count;

static Saved *undo;
static uint32_t undo_count, undo_room;
static List lives;
static List wanted; /* what the host is asked for now */

static JeetBytes settled; /* the text of one live object */

static Entry *last; /* what event last_of touched last */
static double last_of;

static struct {
    double entries, bytes, max_entries, max_bytes;
} usage;

/* Room for that many elements in all; if there is none, the exception is pending. */
static void *with_room(JSContext *ctx, void *items, uint32_t *room, uint32_t wanted_room, size_t each) {
    if (wanted_room <= *room) return items;
    if (wanted_room > LIMIT) {
        JS_ThrowOutOfMemory(ctx);
        return NULL;
    }
    uint32_t more = *room + *room / 2 + 16;
    if (more < wanted_room) more = wanted_room;
    void *larger = js_realloc(ctx, items, more * each);
    if (larger) *room = more;
    return larger;
}

static bool list_room(JSContext *ctx, List *list) {
    if (list->count < list->room) return true;
    Entry **larger = with_room(ctx, list->items, &list->room, list->count + 1, sizeof *larger);
    if (larger) list->items = larger;
    return larger != NULL;
}

static void list_add(List *list, Entry *entry) { list->items[list->count++] = entry; }

static void list_free(JSContext *ctx, List *list) {
    js_free(ctx, list->items);
    *list = (List){NULL, 0, 0};
}

static bool bytes_room(JSContext *ctx, Bytes *bytes, size_t more) {
    if (bytes->room - bytes->len >= more) return true;
    if (more > LIMIT) {
        JS_ThrowOutOfMemory(ctx);
        return false;
    }
    uint8_t *larger = with_room(ctx, bytes->data, &bytes->room, bytes->len + more, 1);
    if (larger) bytes->data = larger;
    return larger != NULL;
}

static bool bytes_add(JSContext *ctx, Bytes *bytes, const void *data, size_t len) {
    if (!bytes_room(ctx, bytes, len)) return false;
    if (len) memcpy(bytes->data + bytes->len, data, len);
    bytes->len += len;
    return true;
}

static JSValue bytes_take(JSContext *ctx, Bytes *bytes) {
    static const uint8_t none;
    JSValue made = JS_NewUint8ArrayCopy(ctx, bytes->data ? bytes->data : &none, bytes->len);
    js_free(ctx, bytes->data);
    *bytes = (Bytes){NULL, 0, 0};
    return made;
}

/* Whether ASCII text in quotes is its JSON text. */
static bool needs_no_escape(const uint8_t *text, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (text[i] < 0x20 || text[i] > 0x7e || text[i] == '"' || text[i] == '\\') return false;
    return true;
}

/* Tables. */

static uint32_t slot_of(const Table *table, JSAtom key) { return (key * 2654435761u >> 7) & table->mask; }

static Entry *table_find(const Table *table, JSAtom key) {
    if (!table->slots) return NULL;
    for (uint32_t i = slot_of(table, key);; i = (i + 1) & table->mask) {
        Entry *entry = table->slots[i];
        if (!entry || entry->key == key) return entry;
    }
}

static void table_place(Table *table, Entry *entry) {
    uint32_t i = slot_of(table, entry->key);
    while (table->slots[i]) i = (i + 1) & table->mask;
    table->slots[i] = entry;
}

static bool table_grow(JSContext *ctx, Table *table) {
    uint32_t room = table->slots ? (table->mask + 1) * 2 : 64;
    Entry **slots = js_calloc(ctx, room, sizeof *slots);
    if (!slots) return false;
    js_free(ctx, table->slots);
    table->slots = slots;
    table->mask = room - 1;
    for (uint32_t i = 0; i < table->entries.count; i++) table_place(table, table->entries.items[i]);
    return true;
}

/* A new entry of a key that the table does not have. Takes the atom in any case; key_text is undefined for a key in quotes. */
static Entry *table_add(JSContext *ctx, Table *table, JSAtom key, JSValueConst key_text) {
    Entry *entry = NULL;
    if (list_room(ctx, &table->entries) &&
        ((table->slots && table->entries.count * 2 <= table->mask) || table_grow(ctx, table)))
        entry = js_malloc(ctx, sizeof *entry);
    if (!entry) {
        JS_FreeAtom(ctx, key);
        return NULL;
    }
    *entry = (Entry){.table = table, .key = key, .refs = 1, .kind = UNKNOWN, .quoted = JS_IsUndefined(key_text),
                     .used_in = jeet_event.batch, .changed_by = -1, .expires = NAN, .value = JS_UNDEFINED,
                     .live = JS_UNDEFINED, .key_text = JS_DupValue(ctx, key_text)};
    list_add(&table->entries, entry);
    table_place(table, entry);
    usage.entries++;
    return entry;
}

static void release(JSRuntime *rt, Entry *entry) {
    if (--entry->refs) return;
    JS_FreeAtomRT(rt, entry->key);
    JS_FreeValueRT(rt, entry->value);
    JS_FreeValueRT(rt, entry->live);
    JS_FreeValueRT(rt, entry->key_text);
    js_free_rt(rt, entry);
}

static void account(Entry *entry, uint32_t size) {
    usage.bytes += (double)size - entry->size;
    entry->size = size;
}

static void touch(Entry *entry) {
    last = entry;
    last_of = jeet_event.serial;
    if (entry) entry->used_in = jeet_event.batch;
}

/* Changes and their undo. */

/* Room for all that one change of an entry may add to lists. */
static bool change_room(JSContext *ctx, Table *table) {
    if (undo_count == undo_room) {
        Saved *larger = with_room(ctx, undo, &undo_room, undo_count + 1, sizeof *larger);
        if (!larger) return false;
        undo = larger;
    }
    return list_room(ctx, &table->changed) && list_room(ctx, &table->touched) && list_room(ctx, &table->recent) &&
           list_room(ctx, &lives);
}

/* None of these can fail after change_room. */

static void save(JSContext *ctx, Entry *entry) {
    if (entry->saved) return;
    undo[undo_count++] = (Saved){entry, JS_DupValue(ctx, entry->value), entry->expires, entry->changed_in, entry->touched_in, entry->kind};
    entry->saved = true;
    jeet_event.changes = undo_count;
}

static void mark_changed(Entry *entry) {
    Table *table = entry->table;
    uint32_t batch = jeet_event.batch;
    if (entry->changed_in != batch) {
        list_add(&table->changed, entry);
        list_add(&table->recent, entry);
        entry->changed_in = batch;
    }
    entry->changed_by = jeet_event.index;
    entry->expires = jeet_event.batch_time + table->ttl; /* NaN without a ttl */
}

static void drop_live(JSContext *ctx, Entry *entry) {
    JSValue live = entry->live;
    entry->live = JS_UNDEFINED;
    entry->assigned = false;
    JS_FreeValue(ctx, live);
}

static void add_live(JSContext *ctx, Entry *entry, JSValue live) {
    if (!entry->live_now) list_add(&lives, entry);
    entry->live_now = true;
    jeet_event.lives = lives.count;
    JSValue before = entry->live;
    entry->live = live;
    JS_FreeValue(ctx, before);
}

static void set_value(JSContext *ctx, Entry *entry, int kind, JSValue value) {
    JSValue before = entry->value;
    entry->kind = kind;
    entry->value = value;
    JS_FreeValue(ctx, before);
}

static void put_plain(JSContext *ctx, Entry *entry, JSValueConst value, uint32_t size) {
    save(ctx, entry);
    mark_changed(entry);
    if (size) account(entry, size);
    set_value(ctx, entry, PLAIN, JS_DupValue(ctx, value));
    if (!JS_IsUndefined(entry->live)) drop_live(ctx, entry);
}

static void put_live(JSContext *ctx, Entry *entry, JSValueConst value) {
    save(ctx, entry);
    mark_changed(entry);
    if (entry->kind != TEXT) set_value(ctx, entry, TEXT, JS_UNDEFINED);
    add_live(ctx, entry, JS_DupValue(ctx, value));
    entry->assigned = true;
}

static void put_absent(JSContext *ctx, Entry *entry) {
    save(ctx, entry);
    mark_changed(entry);
    entry->expires = NAN;
    set_value(ctx, entry, ABSENT, JS_UNDEFINED);
    if (!JS_IsUndefined(entry->live)) drop_live(ctx, entry);
}

/* Freeing a live object may free any other value, but runs no code of the user's. */
static void drop_lives(JSContext *ctx) {
    for (uint32_t i = 0; i < lives.count; i++) {
        lives.items[i]->live_now = false;
        drop_live(ctx, lives.items[i]);
    }
    lives.count = 0;
    jeet_event.lives = 0;
}

void jeet_state_keep(JSContext *ctx) {
    for (uint32_t i = 0; i < undo_count; i++) {
        undo[i].entry->saved = false;
        JS_FreeValue(ctx, undo[i].value);
    }
    undo_count = 0;
    jeet_event.changes = 0;
    if (lives.count) drop_lives(ctx);
}

static void undo_all(JSContext *ctx) {
    while (undo_count) {
        Saved *saved = &undo[--undo_count];
        Entry *entry = saved->entry;
        entry->saved = false;
        entry->expires = saved->expires;
        entry->changed_in = saved->changed_in;
        entry->touched_in = saved->touched_in;
        set_value(ctx, entry, saved->kind, saved->value);
    }
    jeet_event.changes = 0;
    if (lives.count) drop_lives(ctx);
}

/* Reading. */

typedef enum { THERE, NOT_THERE, ASK /* the driver does it */, FAILED } Presence;

static Presence refresh(JSContext *ctx, Entry *entry) {
    Table *table = entry->table;
    double fresh = jeet_event.batch_time + table->ttl;
    if (!(fresh - entry->expires > table->ttl / 10)) return THERE;
    if (!change_room(ctx, table)) return FAILED;
    save(ctx, entry);
    uint32_t batch = jeet_event.batch;
    if (entry->touched_in != batch) {
        list_add(&table->touched, entry);
        list_add(&table->recent, entry);
        entry->touched_in = batch;
    }
    entry->expires = fresh;
    return THERE;
}

static Presence presence(JSContext *ctx, Entry *entry) {
    if (entry->kind == ABSENT) return NOT_THERE;
    if (entry->kind == UNKNOWN) return ASK;
    if (isnan(entry->expires)) return THERE;
    double serial = jeet_event.serial;
    if (jeet_event.event_time_of != serial) {
        jeet_event.event_time = jeet_event.time;
        jeet_event.event_time_of = serial;
    }
    double now = jeet_event.event_time;
    if (entry->expires <= now) return NOT_THERE;
    if (entry->expires <= now + EXACT_TIME_MARGIN_MS && jeet_event.exact_time_of != serial) return ASK;
    return entry->table->by_access ? refresh(ctx, entry) : THERE;
}

/* The live object of an entry of kind TEXT. */
static JSValue thaw(JSContext *ctx, Entry *entry) {
    if (!JS_IsUndefined(entry->live)) return JS_DupValue(ctx, entry->live);
    if (!change_room(ctx, entry->table)) return JS_EXCEPTION;
    size_t len;
    const char *text = JS_ToCStringLen(ctx, &len, entry->value);
    if (!text) return JS_EXCEPTION;
    JSValue live = jeet_json_parse(ctx, (const uint8_t *)text, len);
    if (JS_IsUndefined(live)) live = JS_ParseJSON(ctx, text, len, "<state>");
    JS_FreeCString(ctx, text);
    if (!JS_IsException(live)) add_live(ctx, entry, JS_DupValue(ctx, live));
    return live;
}

/* What is kept of a value that the host sent. */
static bool fill(JSContext *ctx, Entry *entry, const char *text, size_t len, double expires) {
    JSValue value = JS_UNDEFINED;
    int kind = ABSENT;
    if (len && (*text == '{' || *text == '[')) {
        value = JS_NewStringLen(ctx, text, len);
        kind = TEXT;
    } else if (len) {
        kind = PLAIN;
        size_t digits = 0;
        int32_t number = 0;
        while (digits < len && digits < 9 && text[digits] >= '0' && text[digits] <= '9') number = number * 10 + (text[digits++] - '0');
        if (digits == len && (digits == 1 || *text != '0')) {
            value = JS_NewInt32(ctx, number);
        } else if (len >= 2 && *text == '"' && needs_no_escape((const uint8_t *)text + 1, len - 2)) {
            value = JS_NewStringLen(ctx, text + 1, len - 2);
        } else {
            char *copy = js_strndup(ctx, text, len); /* the parser needs a NUL after the text */
            if (!copy) return false;
            value = JS_ParseJSON(ctx, copy, len, "<state>");
            js_free(ctx, copy);
        }
    }
    if (JS_IsException(value)) return false;
    account(entry, len);
    if (!isnan(expires)) entry->expires = expires;
    set_value(ctx, entry, kind, value);
    return true;
}

/* The text of a live object, if it is another one than before. */
static bool settle_text(JSContext *ctx, Entry *entry, const JeetBytes *text) {
    bool ascii = true;
    for (uint32_t i = 0; ascii && i < text->len; i++) ascii = text->data[i] < 0x80;
    if (!entry->assigned && ascii && JS_VALUE_GET_TAG(entry->value) == JS_TAG_STRING) {
        JeetText before = jeet_text(entry->value);
        if (!before.wide && before.len == text->len && memcmp(before.units, text->data, text->len) == 0) return true;
    }
    JSValue value = JS_NewStringLen(ctx, (const char *)text->data, text->len);
    if (JS_IsException(value)) return false;
    if (!entry->assigned && JS_IsStrictEqual(ctx, value, entry->value)) {
        JS_FreeValue(ctx, value);
        return true;
    }
    if (!change_room(ctx, entry->table)) {
        JS_FreeValue(ctx, value);
        return false;
    }
    save(ctx, entry);
    mark_changed(entry);
    account(entry, text->len);
    jeet_event.text_length += text->len;
    set_value(ctx, entry, TEXT, value);
    return true;
}

JeetWriting jeet_state_settle(JSContext *ctx, uint32_t depth) {
    JeetWriting done = JEET_WROTE;
    for (uint32_t i = 0; done == JEET_WROTE && i < lives.count; i++) {
        Entry *entry = lives.items[i];
        if (entry->kind != TEXT || JS_IsUndefined(entry->live)) continue;
        touch(entry);
        done = jeet_json_write(ctx, &settled, entry->live, jeet_event.value_limit, depth);
        if (done == JEET_WROTE && !settle_text(ctx, entry, &settled))
            done = JEET_NO_MEMORY;
        jeet_bytes_clear(ctx, &settled);
    }
    return done;
}

/* The objects that user code sees. */

static Table *table_of(JSContext *ctx, JSValueConst object) {
    (void)ctx;
    return JS_GetOpaque(object, collection_class);
}

static JSValue call_trap(JSContext *ctx, int trap, JSValueConst object, JSAtom key, int argc, JSValueConst more0, JSValueConst more1) {
    JEET_CHARGE(128); /* user code may come here again from what the trap calls */
    JSValue name = key == JS_ATOM_NULL ? JS_UNDEFINED : JS_AtomToValue(ctx, key);
    if (JS_IsException(name)) return name;
    JSValueConst arguments[] = {table_of(ctx, object)->owner, name, more0, more1};
    JSValue result = JS_Call(ctx, traps[trap], JS_UNDEFINED, argc, arguments);
    JS_FreeValue(ctx, name);
    return result;
}

static int truth(JSContext *ctx, JSValue value) {
    if (JS_IsException(value)) return -1;
    int result = JS_ToBool(ctx, value);
    JS_FreeValue(ctx, value);
    return result;
}

static JSValue collection_get(JSContext *ctx, JSValueConst object, JSAtom key, JSValueConst receiver) {
    (void)receiver;
    if (jeet_event.serial != 0) {
        Entry *entry = table_find(table_of(ctx, object), key);
        if (entry) {
            switch (presence(ctx, entry)) {
                case THERE:
                    touch(entry);
                    return entry->kind == PLAIN ? JS_DupValue(ctx, entry->value) : thaw(ctx, entry);
                case NOT_THERE:
                    touch(entry);
                    return JS_UNDEFINED;
                case FAILED:
                    return JS_EXCEPTION;
                case ASK:
                    break;
            }
        }
    }
    return call_trap(ctx, GET, object, key, 2, JS_UNDEFINED, JS_UNDEFINED);
}

static int collection_has(JSContext *ctx, JSValueConst object, JSAtom key) {
    if (jeet_event.serial != 0) {
        Entry *entry = table_find(table_of(ctx, object), key);
        Presence found = entry ? presence(ctx, entry) : ASK;
        if (found == FAILED) return -1;
        if (found != ASK) {
            touch(entry);
            return found == THERE;
        }
    }
    return truth(ctx, call_trap(ctx, HAS, object, key, 2, JS_UNDEFINED, JS_UNDEFINED));
}

/* The entry of a key that can be written to as it is; NULL with no exception pending: the driver does it. */
static Entry *target(JSContext *ctx, Table *table, JSAtom key) {
    Entry *entry = table_find(table, key);
    if (entry) return entry;
    JSValue name = JS_AtomToValue(ctx, key);
    if (JS_IsException(name)) return NULL;
    if (JS_IsString(name)) {
        size_t len;
        const char *text = JS_ToCStringLen(ctx, &len, name);
        if (text && len <= jeet_event.key_limit && needs_no_escape((const uint8_t *)text, len))
            entry = table_add(ctx, table, JS_DupAtom(ctx, key), JS_UNDEFINED);
        if (text) JS_FreeCString(ctx, text);
    }
    JS_FreeValue(ctx, name);
    return entry;
}

/* Whether a value is kept as it is, without a check by the driver; what of it is counted. */
static bool is_simple(JSContext *ctx, JSValueConst value, JSValue *kept, uint32_t *size) {
    *size = 0;
    *kept = value;
    switch (JS_VALUE_GET_NORM_TAG(value)) {
        case JS_TAG_INT:
        case JS_TAG_BOOL:
        case JS_TAG_NULL:
            return true;
        case JS_TAG_FLOAT64: {
            double number = JS_VALUE_GET_FLOAT64(value);
            if (number == 0) *kept = JS_NewInt32(ctx, 0); /* -0 is 0 in JSON */
            return number <= MAX_INTEGER && number >= -MAX_INTEGER && jeet_event.careful == 0;
        }
        case JS_TAG_STRING: {
            int64_t len;
            if (jeet_event.careful != 0 || JS_GetLength(ctx, value, &len) < 0 || len * 6 > jeet_event.value_limit) return false;
            *size = len;
            return true;
        }
        default:
            return false;
    }
}

static int collection_set(JSContext *ctx, JSValueConst object, JSAtom key, JSValueConst value, JSValueConst receiver, int flags) {
    (void)flags;
    JSValue kept = value;
    uint32_t size = 0;
    bool is_object = JS_IsObject(value) && !JS_IsFunction(ctx, value); /* it is checked when it becomes text */
    if (jeet_event.serial != 0 && JS_IsStrictEqual(ctx, receiver, object) && (is_object || is_simple(ctx, value, &kept, &size))) {
        Table *table = table_of(ctx, object);
        Entry *entry = target(ctx, table, key);
        if (entry) {
            if (!change_room(ctx, table)) return -1;
            touch(entry);
            if (is_object)
                put_live(ctx, entry, value);
            else
                put_plain(ctx, entry, kept, size);
            return true;
        }
        if (JS_HasException(ctx)) return -1;
    }
    return truth(ctx, call_trap(ctx, SET, object, key, 4, value, receiver));
}

static int collection_delete(JSContext *ctx, JSValueConst object, JSAtom key) {
    if (jeet_event.serial != 0) {
        Table *table = table_of(ctx, object);
        Entry *entry = target(ctx, table, key);
        if (entry) {
            if (!change_room(ctx, table)) return -1;
            touch(entry);
            put_absent(ctx, entry);
            return true;
        }
        if (JS_HasException(ctx)) return -1;
    }
    return truth(ctx, call_trap(ctx, DELETE, object, key, 2, JS_UNDEFINED, JS_UNDEFINED));
}

static int collection_own(JSContext *ctx, JSPropertyDescriptor *descriptor, JSValueConst object, JSAtom key) {
    JSValue value = collection_get(ctx, object, key, object);
    if (JS_IsException(value)) return -1;
    if (JS_IsUndefined(value)) return false;
    if (descriptor) {
        *descriptor = (JSPropertyDescriptor){.flags = JS_PROP_C_W_E, .value = value, .getter = JS_UNDEFINED, .setter = JS_UNDEFINED};
    } else {
        JS_FreeValue(ctx, value);
    }
    return true;
}

static int collection_names(JSContext *ctx, JSPropertyEnum **names, uint32_t *count, JSValueConst object) {
    *names = NULL;
    *count = 0;
    JSValue keys = call_trap(ctx, KEYS, object, JS_ATOM_NULL, 1, JS_UNDEFINED, JS_UNDEFINED);
    int64_t len;
    if (JS_IsException(keys)) return -1;
    JSPropertyEnum *made = NULL;
    uint32_t done = 0;
    if (JS_GetLength(ctx, keys, &len) < 0 || len > LIMIT) goto failed;
    made = js_malloc(ctx, sizeof *made * (len ? len : 1));
    if (!made) goto failed;
    for (; done < len; done++) {
        JSValue key = JS_GetPropertyUint32(ctx, keys, done);
        if (JS_IsException(key)) goto failed;
        made[done] = (JSPropertyEnum){.is_enumerable = true, .atom = JS_ValueToAtom(ctx, key)};
        JS_FreeValue(ctx, key);
        if (made[done].atom == JS_ATOM_NULL) goto failed;
    }
    JS_FreeValue(ctx, keys);
    *names = made;
    *count = done;
    return 0;
failed:
    while (done) JS_FreeAtom(ctx, made[--done].atom);
    js_free(ctx, made);
    JS_FreeValue(ctx, keys);
    return -1;
}

static int collection_define(JSContext *ctx, JSValueConst object, JSAtom key, JSValueConst value, JSValueConst getter, JSValueConst setter, int flags) {
    (void)getter, (void)setter;
    return truth(ctx, call_trap(ctx, DEFINE, object, key, 4, JS_NewBool(ctx, (flags & JS_PROP_HAS_VALUE) != 0), value));
}

bool jeet_is_collection(JSContext *ctx, JSValueConst object) { return table_of(ctx, object) != NULL; }

int jeet_refuse_prototype(JSContext *ctx, JSValueConst object) {
    return truth(ctx, call_trap(ctx, REFUSE_PROTOTYPE, object, JS_ATOM_NULL, 1, JS_UNDEFINED, JS_UNDEFINED));
}

int jeet_refuse_preventing(JSContext *ctx, JSValueConst object) {
    return truth(ctx, call_trap(ctx, REFUSE_PREVENTING, object, JS_ATOM_NULL, 1, JS_UNDEFINED, JS_UNDEFINED));
}

static JSClassExoticMethods collection_methods = {
    .get_own_property = collection_own,
    .get_own_property_names = collection_names,
    .delete_property = collection_delete,
    .define_own_property = collection_define,
    .has_property = collection_has,
    .get_property = collection_get,
    .set_property = collection_set,
};

/* Entries as the driver sees them. */

static JSValue show(JSContext *ctx, Entry *entry) {
    if (!entry) return JS_UNDEFINED;
    if (entry->object) return JS_DupValue(ctx, JS_MKPTR(JS_TAG_OBJECT, entry->object));
    JSValue made = JS_NewObjectClass(ctx, entry_class);
    if (JS_IsException(made)) return made;
    JS_SetOpaque(made, entry);
    entry->object = JS_VALUE_GET_PTR(made);
    entry->refs++;
    return made;
}

static void entry_finalizer(JSRuntime *rt, JSValueConst object) {
    JSClassID id; /* the static one may be forgotten by now */
    Entry *entry = JS_GetAnyOpaque(object, &id);
    if (!entry) return;
    entry->object = NULL;
    release(rt, entry);
}

enum { OWNER, KEY, KIND, VALUE, LIVE, EXPIRES, CHANGED_BY };

static JSValue entry_field(JSContext *ctx, JSValueConst object, int field) {
    const Entry *entry = JS_GetOpaque2(ctx, object, entry_class);
    if (!entry) return JS_EXCEPTION;
    switch (field) {
        case OWNER:
            return JS_DupValue(ctx, entry->table->owner);
        case KEY:
            return JS_AtomToString(ctx, entry->key);
        case KIND:
            return JS_NewInt32(ctx, entry->kind);
        case VALUE:
            return JS_DupValue(ctx, entry->value);
        case LIVE:
            return JS_DupValue(ctx, entry->live);
        case EXPIRES:
            return isnan(entry->expires) ? JS_NULL : JS_NewFloat64(ctx, entry->expires);
        default:
            return JS_NewInt32(ctx, entry->changed_by);
    }
}

static const JSCFunctionListEntry entry_members[] = {
    JS_CGETSET_MAGIC_DEF("owner", entry_field, NULL, OWNER),
    JS_CGETSET_MAGIC_DEF("key", entry_field, NULL, KEY),
    JS_CGETSET_MAGIC_DEF("kind", entry_field, NULL, KIND),
    JS_CGETSET_MAGIC_DEF("value", entry_field, NULL, VALUE),
    JS_CGETSET_MAGIC_DEF("live", entry_field, NULL, LIVE),
    JS_CGETSET_MAGIC_DEF("expires", entry_field, NULL, EXPIRES),
    JS_CGETSET_MAGIC_DEF("changedBy", entry_field, NULL, CHANGED_BY),
};

/* What the driver calls: the members of guest/table.js by the same names. */

#define ARGUMENTS JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv

/* QuickJS fills missing arguments with undefined up to the declared number. */
static Entry *entry_at(JSContext *ctx, JSValueConst value) { return JS_GetOpaque2(ctx, value, entry_class); }

static JSValue do_put_plain(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = entry_at(ctx, argv[0]);
    int64_t size = 0;
    if (!entry || (JS_IsString(argv[1]) && JS_GetLength(ctx, argv[1], &size) < 0) || !change_room(ctx, entry->table)) return JS_EXCEPTION;
    put_plain(ctx, entry, argv[1], size);
    return JS_UNDEFINED;
}

static JSValue do_put_live(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = entry_at(ctx, argv[0]);
    if (!entry || !change_room(ctx, entry->table)) return JS_EXCEPTION;
    put_live(ctx, entry, argv[1]);
    return JS_UNDEFINED;
}

static JSValue do_put_absent(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = entry_at(ctx, argv[0]);
    if (!entry || !change_room(ctx, entry->table)) return JS_EXCEPTION;
    put_absent(ctx, entry);
    return JS_UNDEFINED;
}

/* The entry of the list of lives with that index; NULL if there is none. */
static Entry *live_entry(JSContext *ctx, JSValueConst index) {
    uint32_t i;
    return JS_ToUint32(ctx, &i, index) < 0 || i >= lives.count ? NULL : lives.items[i];
}

static JSValue do_live_at(ARGUMENTS) {
    (void)this_value, (void)argc;
    return show(ctx, live_entry(ctx, argv[0]));
}

/* liveValue(i): the object to make text of, or undefined if its entry was given another value. */
static JSValue do_live_value(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = live_entry(ctx, argv[0]);
    if (!entry || entry->kind != TEXT || JS_IsUndefined(entry->live)) return JS_UNDEFINED;
    touch(entry);
    return JS_DupValue(ctx, entry->live);
}

static JSValue do_settle(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = live_entry(ctx, argv[0]);
    if (!entry) return JS_ThrowRangeError(ctx, "no such live object");
    if (!entry->assigned && JS_IsStrictEqual(ctx, argv[1], entry->value)) return JS_UNDEFINED;
    if (!change_room(ctx, entry->table)) return JS_EXCEPTION;
    int64_t size;
    size_t len;
    if (JS_GetLength(ctx, argv[1], &size) < 0) return JS_EXCEPTION;
    const char *text = JS_ToCStringLen(ctx, &len, argv[1]);
    if (!text) return JS_EXCEPTION;
    bool plain = *text != '{' && *text != '['; /* a toJSON answered with a plain value */
    JSValue value = plain ? JS_ParseJSON(ctx, text, len, "<state>") : JS_DupValue(ctx, argv[1]);
    JS_FreeCString(ctx, text);
    if (JS_IsException(value)) return value;
    save(ctx, entry);
    mark_changed(entry);
    account(entry, size);
    jeet_event.text_length += size;
    set_value(ctx, entry, plain ? PLAIN : TEXT, value);
    return JS_UNDEFINED;
}

static JSValue do_thaw(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = entry_at(ctx, argv[0]);
    return entry ? thaw(ctx, entry) : JS_EXCEPTION;
}

static JSValue do_fill(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = entry_at(ctx, argv[0]);
    size_t len;
    double expires = NAN;
    if (!entry || (!JS_IsNull(argv[2]) && JS_ToFloat64(ctx, &expires, argv[2]) < 0)) return JS_EXCEPTION;
    const char *text = JS_ToCStringLen(ctx, &len, argv[1]);
    if (!text) return JS_EXCEPTION;
    bool filled = fill(ctx, entry, text, len, expires);
    JS_FreeCString(ctx, text);
    return filled ? JS_UNDEFINED : JS_EXCEPTION;
}

static JSValue do_refresh(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = entry_at(ctx, argv[0]);
    return !entry || refresh(ctx, entry) == FAILED ? JS_EXCEPTION : JS_UNDEFINED;
}

static JSValue do_touch(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = NULL;
    if (!JS_IsNull(argv[0]) && !(entry = entry_at(ctx, argv[0]))) return JS_EXCEPTION;
    touch(entry);
    return JS_UNDEFINED;
}

static JSValue do_last_touched(ARGUMENTS) {
    (void)this_value, (void)argc, (void)argv;
    return last && last_of == jeet_event.serial ? show(ctx, last) : JS_NULL;
}

static JSValue do_keep(ARGUMENTS) {
    (void)this_value, (void)argc, (void)argv;
    jeet_state_keep(ctx);
    return JS_UNDEFINED;
}

static JSValue do_undo(ARGUMENTS) {
    (void)this_value, (void)argc, (void)argv;
    undo_all(ctx);
    return JS_UNDEFINED;
}

/* The cache's bounds. */

static bool is_settled(const Entry *entry) {
    return entry->changed_in <= jeet_event.committed && entry->touched_in <= jeet_event.committed;
}

static bool is_within(double part) { return usage.entries <= usage.max_entries * part && usage.bytes <= usage.max_bytes * part; }

static bool may_go(const Entry *entry, int age) { return is_settled(entry) && entry->used_in <= jeet_event.batch - 1 - age; }

/* Forgets clean entries, least recently read first, until the cache is at three quarters of its bounds. */
static void evict(JSContext *ctx) {
    last = NULL;
    wanted.count = 0;
    for (int age = 1; age >= 0; age--) {
        for (uint32_t t = 0; t < table_count; t++) {
            if (is_within(0.75)) return;
            Table *table = tables[t];
            uint32_t kept = 0;
            for (uint32_t i = 0; i < table->entries.count; i++) {
                Entry *entry = table->entries.items[i];
                if (is_within(0.75) || !may_go(entry, age)) {
                    table->entries.items[kept++] = entry;
                    continue;
                }
                usage.entries--;
                account(entry, 0);
                release(JS_GetRuntime(ctx), entry);
            }
            if (kept == table->entries.count) continue;
            table->entries.count = kept;
            memset(table->slots, 0, (table->mask + 1) * sizeof *table->slots);
            for (uint32_t i = 0; i < kept; i++) table_place(table, table->entries.items[i]);
        }
    }
}

static JSValue do_begin_batch(ARGUMENTS) {
    (void)this_value, (void)argc, (void)argv;
    for (uint32_t t = 0; t < table_count; t++) {
        Table *table = tables[t];
        table->changed.count = table->touched.count = 0;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < table->recent.count; i++)
            if (!is_settled(table->recent.items[i])) table->recent.items[kept++] = table->recent.items[i];
        table->recent.count = kept;
    }
    if (!is_within(1)) evict(ctx);
    return JS_UNDEFINED;
}

static JSValue do_bounds(ARGUMENTS) {
    (void)this_value, (void)argc;
    if (JS_ToFloat64(ctx, &usage.max_entries, argv[0]) < 0 || JS_ToFloat64(ctx, &usage.max_bytes, argv[1]) < 0) return JS_EXCEPTION;
    return JS_UNDEFINED;
}

/* Tables as the driver sees them. */

static Table *this_table(JSContext *ctx, JSValueConst value) { return JS_GetOpaque2(ctx, value, table_class); }

static JSValue table_find_key(ARGUMENTS) {
    (void)argc;
    Table *table = this_table(ctx, this_value);
    if (!table) return JS_EXCEPTION;
    JSAtom key = JS_ValueToAtom(ctx, argv[0]);
    if (key == JS_ATOM_NULL) return JS_EXCEPTION;
    JSValue shown = show(ctx, table_find(table, key));
    JS_FreeAtom(ctx, key);
    return shown;
}

static JSValue table_add_key(ARGUMENTS) {
    (void)argc;
    Table *table = this_table(ctx, this_value);
    if (!table) return JS_EXCEPTION;
    size_t len;
    const char *text = JS_ToCStringLen(ctx, &len, argv[1]);
    if (!text) return JS_EXCEPTION;
    bool quoted = len >= 2 && needs_no_escape((const uint8_t *)text + 1, len - 2);
    JS_FreeCString(ctx, text);
    JSAtom key = JS_ValueToAtom(ctx, argv[0]);
    if (key == JS_ATOM_NULL) return JS_EXCEPTION;
    Entry *entry = table_add(ctx, table, key, quoted ? JS_UNDEFINED : argv[1]);
    return entry ? show(ctx, entry) : JS_EXCEPTION;
}

static JSValue show_list(JSContext *ctx, const List *list) {
    JSValue made = JS_NewArray(ctx);
    if (JS_IsException(made)) return made;
    for (uint32_t i = 0; i < list->count; i++) {
        JSValue entry = show(ctx, list->items[i]);
        if (JS_IsException(entry) || JS_SetPropertyUint32(ctx, made, i, entry) < 0) {
            JS_FreeValue(ctx, made);
            return JS_EXCEPTION;
        }
    }
    return made;
}

static JSValue table_recent(ARGUMENTS) {
    (void)argc, (void)argv;
    Table *table = this_table(ctx, this_value);
    return table ? show_list(ctx, &table->recent) : JS_EXCEPTION;
}

static bool add_string(JSContext *ctx, Bytes *bytes, JSValueConst string) {
    size_t len;
    const char *text = JS_ToCStringLen(ctx, &len, string);
    if (!text) return false;
    bool added = bytes_add(ctx, bytes, text, len);
    JS_FreeCString(ctx, text);
    return added;
}

static bool add_key(JSContext *ctx, Bytes *bytes, const Entry *entry) {
    if (!entry->quoted) return add_string(ctx, bytes, entry->key_text);
    size_t len;
    const char *text = JS_AtomToCStringLen(ctx, &len, entry->key);
    if (!text) return false;
    bool added = bytes_room(ctx, bytes, len + 2) && bytes_add(ctx, bytes, "\"", 1) && bytes_add(ctx, bytes, text, len) && bytes_add(ctx, bytes, "\"", 1);
    JS_FreeCString(ctx, text);
    return added;
}

static bool add_integer(JSContext *ctx, Bytes *bytes, int32_t number) {
    char text[12], *at = text + sizeof text;
    uint32_t left = number < 0 ? 0u - (uint32_t)number : (uint32_t)number;
    do *--at = '0' + left % 10;
    while (left /= 10);
    if (number < 0) *--at = '-';
    return bytes_add(ctx, bytes, at, text + sizeof text - at);
}

/* A plain value as JSON.stringify writes it. */
static bool add_plain(JSContext *ctx, Bytes *bytes, JSValueConst value) {
    if (JS_VALUE_GET_TAG(value) == JS_TAG_INT) return add_integer(ctx, bytes, JS_VALUE_GET_INT(value));
    if (!JS_IsString(value)) return add_string(ctx, bytes, value);
    size_t len;
    const char *text = JS_ToCStringLen(ctx, &len, value);
    if (!text) return false;
    bool quoted = needs_no_escape((const uint8_t *)text, len);
    bool added = quoted && bytes_add(ctx, bytes, "\"", 1) && bytes_add(ctx, bytes, text, len) && bytes_add(ctx, bytes, "\"", 1);
    JS_FreeCString(ctx, text);
    if (quoted) return added;
    JSValue json = JS_JSONStringify(ctx, value, JS_UNDEFINED, JS_UNDEFINED);
    if (JS_IsException(json)) return false;
    added = add_string(ctx, bytes, json);
    JS_FreeValue(ctx, json);
    return added;
}

static bool add_line(JSContext *ctx, Bytes *bytes, uint32_t count) { return count == 0 || bytes_add(ctx, bytes, "\n", 1); }

enum { PUT_KEYS, PUT_VALUES, DELETE_KEYS, TOUCHED_KEYS, COLUMNS };

/* The batch's writes: [puts, deletes, touched, and their four columns], the last value of each key; null if there are none. */
static JSValue table_writes(ARGUMENTS) {
    (void)argc, (void)argv;
    Table *table = this_table(ctx, this_value);
    if (!table) return JS_EXCEPTION;
    Bytes columns[COLUMNS] = {{NULL, 0, 0}};
    uint32_t puts = 0, deletes = 0, touches = 0, batch = jeet_event.batch;
    JSValue made = JS_EXCEPTION;
    for (uint32_t i = 0; i < table->changed.count; i++) {
        Entry *entry = table->changed.items[i];
        if (entry->changed_in != batch || entry->sent_in == batch) continue;
        entry->sent_in = batch; /* the lists may hold an entry twice */
        if (entry->kind == ABSENT) {
            if (!add_line(ctx, &columns[DELETE_KEYS], deletes++) || !add_key(ctx, &columns[DELETE_KEYS], entry)) goto failed;
            continue;
        }
        if (!add_line(ctx, &columns[PUT_KEYS], puts) || !add_line(ctx, &columns[PUT_VALUES], puts)) goto failed;
        puts++;
        if (!add_key(ctx, &columns[PUT_KEYS], entry)) goto failed;
        if (!(entry->kind == PLAIN ? add_plain : add_string)(ctx, &columns[PUT_VALUES], entry->value)) goto failed;
    }
    for (uint32_t i = 0; i < table->touched.count; i++) {
        Entry *entry = table->touched.items[i];
        if (entry->touched_in != batch || entry->sent_in == batch) continue;
        entry->sent_in = batch;
        if (!add_line(ctx, &columns[TOUCHED_KEYS], touches++) || !add_key(ctx, &columns[TOUCHED_KEYS], entry)) goto failed;
    }
    if (puts + deletes + touches == 0) return JS_NULL;
    made = JS_NewArray(ctx);
    if (JS_IsException(made)) goto failed;
    const uint32_t counts[] = {puts, deletes, touches};
    for (uint32_t i = 0; i < 3 + COLUMNS; i++) {
        JSValue part = i < 3 ? JS_NewUint32(ctx, counts[i]) : bytes_take(ctx, &columns[i - 3]);
        if (JS_IsException(part) || JS_SetPropertyUint32(ctx, made, i, part) < 0) goto failed;
    }
    return made;
failed:
    for (int i = 0; i < COLUMNS; i++) js_free(ctx, columns[i].data);
    JS_FreeValue(ctx, made);
    return JS_EXCEPTION;
}

static const JSCFunctionListEntry table_members[] = {
    JS_CFUNC_DEF("find", 1, table_find_key),
    JS_CFUNC_DEF("add", 2, table_add_key),
    JS_CFUNC_DEF("recent", 0, table_recent),
    JS_CFUNC_DEF("writes", 0, table_writes),
};

/* The keys to ask the host for: one list, as one request is under way at most. */

static JSValue wanted_object = JS_UNDEFINED;

static JSValue do_wanted(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = entry_at(ctx, argv[1]);
    wanted.count = 0;
    if (!entry || !list_room(ctx, &wanted)) return JS_EXCEPTION;
    list_add(&wanted, entry);
    return JS_DupValue(ctx, wanted_object);
}

static JSValue wanted_count(JSContext *ctx, JSValueConst this_value) {
    (void)this_value;
    return JS_NewUint32(ctx, wanted.count);
}

static JSValue wanted_add(ARGUMENTS) {
    (void)this_value, (void)argc;
    Entry *entry = entry_at(ctx, argv[0]);
    if (!entry || !list_room(ctx, &wanted)) return JS_EXCEPTION;
    list_add(&wanted, entry);
    return JS_UNDEFINED;
}

/* The next line of a column; false at its end. */
static bool next_line(const uint8_t **at, const uint8_t *end, const uint8_t **line, size_t *len) {
    if (!*at) return false;
    const uint8_t *stop = memchr(*at, '\n', end - *at);
    *line = *at;
    *len = (stop ? stop : end) - *at;
    *at = stop ? stop + 1 : NULL;
    return true;
}

/* addLines(column, from, most): the keys of these lines that are not known yet. False if there was no room for all. */
static JSValue wanted_add_lines(ARGUMENTS) {
    (void)this_value, (void)argc;
    size_t total, len;
    uint32_t from, most;
    const uint8_t *at = JS_GetUint8Array(ctx, &total, argv[0]), *end = at + total, *line;
    if (!at) return total == 0 && !JS_HasException(ctx) ? JS_TRUE : JS_EXCEPTION;
    if (JS_ToUint32(ctx, &from, argv[1]) < 0 || JS_ToUint32(ctx, &most, argv[2]) < 0) return JS_EXCEPTION;
    if (wanted.count == 0) return JS_ThrowTypeError(ctx, "nothing is wanted");
    Table *table = wanted.items[0]->table;
    for (uint32_t i = 0; next_line(&at, end, &line, &len); i++) {
        if (i < from || len < 2 || *line != '"' || len > jeet_event.key_limit) continue;
        bool quoted = needs_no_escape(line + 1, len - 2);
        JSValue text = JS_UNDEFINED;
        JSAtom key;
        if (quoted) {
            key = JS_NewAtomLen(ctx, (const char *)line + 1, len - 2);
        } else {
            text = JS_NewStringLen(ctx, (const char *)line, len);
            const char *copy = JS_IsException(text) ? NULL : JS_ToCString(ctx, text);
            JSValue name = copy ? JS_ParseJSON(ctx, copy, len, "<key>") : JS_EXCEPTION;
            if (copy) JS_FreeCString(ctx, copy);
            key = JS_IsException(name) ? JS_ATOM_NULL : JS_ValueToAtom(ctx, name);
            JS_FreeValue(ctx, name);
        }
        bool known = key != JS_ATOM_NULL && table_find(table, key), full = wanted.count >= most;
        if (known || full) JS_FreeAtom(ctx, key);
        Entry *entry = NULL;
        if (key != JS_ATOM_NULL && !known && !full) {
            if (list_room(ctx, &wanted))
                entry = table_add(ctx, table, key, text);
            else
                JS_FreeAtom(ctx, key);
        }
        JS_FreeValue(ctx, text);
        if (entry)
            list_add(&wanted, entry);
        else if (!known)
            return full && key != JS_ATOM_NULL ? JS_FALSE : JS_EXCEPTION;
    }
    return JS_TRUE;
}

static JSValue wanted_request(ARGUMENTS) {
    (void)this_value, (void)argc;
    Bytes bytes = {NULL, 0, 0};
    if (!bytes_add(ctx, &bytes, "{\"c\":", 5) || !add_string(ctx, &bytes, argv[0]) || !bytes_add(ctx, &bytes, ",\"k\":[", 6)) goto failed;
    for (uint32_t i = 0; i < wanted.count; i++)
        if ((i && !bytes_add(ctx, &bytes, ",", 1)) || !add_key(ctx, &bytes, wanted.items[i])) goto failed;
    if (!bytes_add(ctx, &bytes, "]}", 2)) goto failed;
    return bytes_take(ctx, &bytes);
failed:
    js_free(ctx, bytes.data);
    return JS_EXCEPTION;
}

/* take(expiries or null, values): fills the entries; the length of it all, or -1 if these are not values of the entries. */
static JSValue wanted_take(ARGUMENTS) {
    (void)this_value, (void)argc;
    size_t total, len = 0;
    const uint8_t *at = JS_GetUint8Array(ctx, &total, argv[1]), *line = NULL;
    if (!at) {
        if (JS_HasException(ctx)) return JS_EXCEPTION;
        at = (const uint8_t *)"";
    }
    const uint8_t *end = at + total;
    uint32_t lines = 1;
    for (const uint8_t *p = at; (p = memchr(p, '\n', end - p)); p++) lines++;
    if (lines != wanted.count) return JS_NewInt32(ctx, -1);
    for (uint32_t i = 0; next_line(&at, end, &line, &len); i++) {
        double expires = NAN;
        if (!JS_IsNull(argv[0])) {
            JSValue given = JS_GetPropertyUint32(ctx, argv[0], i);
            if (JS_IsException(given) || (!JS_IsNull(given) && JS_ToFloat64(ctx, &expires, given) < 0)) {
                JS_FreeValue(ctx, given);
                return JS_EXCEPTION;
            }
            JS_FreeValue(ctx, given);
        }
        if (wanted.items[i]->kind == UNKNOWN && !fill(ctx, wanted.items[i], (const char *)line, len, expires)) return JS_EXCEPTION;
    }
    return JS_NewNumber(ctx, total);
}

static const JSCFunctionListEntry wanted_members[] = {
    JS_CGETSET_DEF("count", wanted_count, NULL),
    JS_CFUNC_DEF("add", 1, wanted_add),
    JS_CFUNC_DEF("addLines", 3, wanted_add_lines),
    JS_CFUNC_DEF("request", 1, wanted_request),
    JS_CFUNC_DEF("take", 2, wanted_take),
};

/* open(owner, ttl or null, byAccess): a table, with the object of its collection. */
static JSValue do_open(ARGUMENTS) {
    (void)this_value, (void)argc;
    double ttl = NAN;
    if (!JS_IsNull(argv[1]) && JS_ToFloat64(ctx, &ttl, argv[1]) < 0) return JS_EXCEPTION;
    Table **larger = js_realloc(ctx, tables, (table_count + 1) * sizeof *tables);
    if (!larger) return JS_EXCEPTION;
    tables = larger;
    Table *table = js_mallocz(ctx, sizeof *table);
    if (!table) return JS_EXCEPTION;
    table->ttl = ttl;
    table->by_access = JS_ToBool(ctx, argv[2]);
    table->object = JS_NewObjectProtoClass(ctx, JS_NULL, collection_class);
    JSValue made = JS_NewObjectClass(ctx, table_class);
    if (JS_IsException(table->object) || JS_IsException(made) ||
        JS_DefinePropertyValueStr(ctx, made, "object", JS_DupValue(ctx, table->object), JS_PROP_ENUMERABLE) < 0) {
        JS_FreeValue(ctx, table->object);
        JS_FreeValue(ctx, made);
        js_free(ctx, table);
        return JS_EXCEPTION;
    }
    JS_SetOpaque(table->object, table);
    JS_SetOpaque(made, table);
    table->owner = JS_DupValue(ctx, argv[0]);
    tables[table_count++] = table;
    return made;
}

static const JSCFunctionListEntry members[] = {
    JS_CFUNC_DEF("bounds", 2, do_bounds),
    JS_CFUNC_DEF("open", 3, do_open),
    JS_CFUNC_DEF("wanted", 2, do_wanted),
    JS_CFUNC_DEF("touch", 1, do_touch),
    JS_CFUNC_DEF("lastTouched", 0, do_last_touched),
    JS_CFUNC_DEF("putPlain", 2, do_put_plain),
    JS_CFUNC_DEF("putLive", 2, do_put_live),
    JS_CFUNC_DEF("putAbsent", 1, do_put_absent),
    JS_CFUNC_DEF("settle", 2, do_settle),
    JS_CFUNC_DEF("thaw", 1, do_thaw),
    JS_CFUNC_DEF("fill", 3, do_fill),
    JS_CFUNC_DEF("refresh", 1, do_refresh),
    JS_CFUNC_DEF("liveAt", 1, do_live_at),
    JS_CFUNC_DEF("liveValue", 1, do_live_value),
    JS_CFUNC_DEF("keepChanges", 0, do_keep),
    JS_CFUNC_DEF("undoAll", 0, do_undo),
    JS_CFUNC_DEF("beginBatch", 0, do_begin_batch),
};

static bool make_class(JSContext *ctx, JSClassID *id, const JSClassDef *definition, const JSCFunctionListEntry *list, int count) {
    JSRuntime *rt = JS_GetRuntime(ctx);
    JS_NewClassID(rt, id);
    if (!JS_IsRegisteredClass(rt, *id) && JS_NewClass(rt, *id, definition) < 0) return false;
    if (!list) return true;
    JSValue prototype = JS_NewObjectProto(ctx, JS_NULL);
    if (JS_IsException(prototype)) return false;
    JS_SetClassProto(ctx, *id, prototype);
    return JS_SetPropertyFunctionList(ctx, prototype, list, count) >= 0;
}

#define COUNT_OF(list) (int)(sizeof list / sizeof *list)

/* stateTables(traps): the functions above, once in a runtime. */
JSValue jeet_state_tables(ARGUMENTS) {
    (void)this_value, (void)argc;
    static const JSClassDef collection = {"Collection", .exotic = &collection_methods};
    static const JSClassDef table = {"Table", .finalizer = NULL};
    static const JSClassDef entry = {"Entry", .finalizer = entry_finalizer};
    if (has_traps) return JS_ThrowTypeError(ctx, "the tables of state are already in use");
    if (!make_class(ctx, &collection_class, &collection, NULL, 0) ||
        !make_class(ctx, &table_class, &table, table_members, COUNT_OF(table_members)) ||
        !make_class(ctx, &entry_class, &entry, entry_members, COUNT_OF(entry_members)))
        return JS_EXCEPTION;
    JSValue found[TRAPS], made = JS_EXCEPTION;
    int got = 0;
    for (; got < TRAPS; got++) {
        found[got] = JS_GetPropertyStr(ctx, argv[0], trap_names[got]);
        if (JS_IsException(found[got])) goto failed;
    }
    made = JS_NewObjectProto(ctx, JS_NULL);
    if (JS_IsException(made) || JS_SetPropertyFunctionList(ctx, made, members, COUNT_OF(members)) < 0) goto failed;
    JSValue list = JS_NewObjectProto(ctx, JS_NULL);
    if (JS_IsException(list)) goto failed;
    if (JS_SetPropertyFunctionList(ctx, list, wanted_members, COUNT_OF(wanted_members)) < 0) {
        JS_FreeValue(ctx, list);
        goto failed;
    }
    wanted_object = list;
    memcpy(traps, found, sizeof traps);
    has_traps = true;
    return made;
failed:
    while (got) JS_FreeValue(ctx, found[--got]);
    JS_FreeValue(ctx, made);
    return JS_EXCEPTION;
}

/* The end of a runtime: its objects go after this, and no JavaScript runs any more. */
void jeet_state_reset(JSContext *ctx) {
    undo_all(ctx);
    for (uint32_t t = 0; t < table_count; t++) {
        Table *table = tables[t];
        for (uint32_t i = 0; i < table->entries.count; i++) release(JS_GetRuntime(ctx), table->entries.items[i]);
        List *lists[] = {&table->entries, &table->changed, &table->touched, &table->recent};
        for (int i = 0; i < COUNT_OF(lists); i++) list_free(ctx, lists[i]);
        js_free(ctx, table->slots);
        JS_FreeValue(ctx, table->owner);
        JS_FreeValue(ctx, table->object);
        js_free(ctx, table);
    }
    js_free(ctx, tables);
    js_free(ctx, undo);
    list_free(ctx, &lives);
    list_free(ctx, &wanted);
    jeet_bytes_free(ctx, &settled);
    for (int i = 0; has_traps && i < TRAPS; i++) JS_FreeValue(ctx, traps[i]);
    JS_FreeValue(ctx, wanted_object);
    tables = NULL;
    undo = NULL;
    table_count = undo_count = undo_room = 0;
    wanted_object = JS_UNDEFINED;
    has_traps = false;
    collection_class = table_class = entry_class = JS_INVALID_CLASS_ID; /* numbers are of a runtime */
    last = NULL;
    memset(&usage, 0, sizeof usage);
}
