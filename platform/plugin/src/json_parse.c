/* The parser: an event from its UTF-8 bytes to a value, as JSON.parse would make it, without strings on the way.
 *
 * It takes strict RFC 8259. What is not that, or not UTF-8, or nested very deeply, it gives up: JSON.parse then says what is
 * wrong, so both agree about every text. Names are kept in a small table from their bytes to QuickJS's atoms; objects that
 * are given the same atoms in the same order share their shape. Nesting is kept on a list of frames, not on the stack. */
#include "json.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 1000u
#define NAMES 256u
#define NAME_BYTES 27u

typedef struct {
    JSAtom atom; /* held; JS_ATOM_NULL: free */
    uint8_t len;
    uint8_t text[NAME_BYTES];
} Name;

typedef struct {
    JSValue container;
    JSAtom name; /* of the value that comes next; JS_ATOM_NULL: the container is an array */
    bool is_array;
} Frame;

typedef struct {
    JSContext *ctx;
    const uint8_t *p;
} Reader;

static Name names[NAMES];
static Frame frames[MOST_DEPTH];
static uint16_t *units; /* of a string that holds more than ASCII */
static uint32_t unit_room;

void jeet_json_reset(JSContext *ctx) {
    for (uint32_t i = 0; i < NAMES; i++) {
        JS_FreeAtom(ctx, names[i].atom);
        names[i].atom = JS_ATOM_NULL;
    }
    js_free(ctx, units);
    units = NULL;
    unit_room = 0;
}

typedef enum { READ = 0, GIVEN_UP = -1, FAILED = -2 } Reading;

static void skip_space(Reader *r) {
    while (*r->p == ' ' || *r->p == '\t' || *r->p == '\r' || *r->p == '\n') r->p++;
}

/* Whether all eight bytes are ASCII that a string holds as it is. */
static inline bool plain_word(const uint8_t *p) {
    const uint64_t ones = 0x0101010101010101ull;
    uint64_t word;
    memcpy(&word, p, 8);
    uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    return !(((word - ones * 0x20) | (quote - ones) | (backslash - ones) | word) & (ones << 7));
}

static const uint8_t *plain_end(const uint8_t *p, const uint8_t *end) {
    while (end - p >= 8 && plain_word(p)) p += 8;
    while (*p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\') p++;
    return p;
}

static int hex(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One well-formed sequence beyond ASCII; -1 if it is none. The bytes end with a NUL, which is no continuation. */
static int32_t read_sequence(const uint8_t **pp) {
    const uint8_t *p = *pp;
    uint32_t lead = p[0], low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    int more = lead >= 0xC2 && lead <= 0xDF ? 1 : lead >= 0xE0 && lead <= 0xEF ? 2 : lead >= 0xF0 && lead <= 0xF4 ? 3 : 0;
    if (!more) return -1;
    uint32_t c = lead & (0x3F >> more);
    for (int i = 1; i <= more; i++) {
        if (p[i] < low || p[i] > high) return -1;
        c = c << 6 | (p[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
    }
    *pp = p + more + 1;
    return c;
}

static int32_t read_escape(const uint8_t **pp) {
    const uint8_t *p = *pp;
    *pp = p + 1;
    switch (*p) {
    case '"': case '\\': case '/': return *p;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': {
        uint32_t c = 0;
        for (int i = 1; i <= 4; i++) {
            int digit = hex(p[i]);
            if (digit < 0) return -1;
            c = c << 4 | digit;
        }
        *pp = p + 5;
        return c;
    }
    default: return -1;
    }
}

/* The rest of a string that holds more than plain ASCII; `start` is its first byte. */
static Reading read_units(Reader *r, const uint8_t *start, const uint8_t *end, JSValue *string) {
    const uint8_t *p = start, *close = start;
    while (close < end && *close != '"') close += *close == '\\' ? 2 : 1;
    if (close >= end) return GIVEN_UP;
    uint32_t most = close - start, count = 0, all = 0;
    if (most > unit_room) {
        uint16_t *larger = js_realloc(r->ctx, units, most * sizeof *units);
        if (!larger) return FAILED;
        units = larger;
        unit_room = most;
    }
    while (p < close) {
        int32_t c = *p;
        if (c == '\\') {
            p++;
            c = read_escape(&p);
        } else if (c >= 0x80) {
            c = read_sequence(&p);
        } else if (c < 0x20) {
            c = -1;
        } else {
            p++;
        }
        if (c < 0) return GIVEN_UP;
        if (c >= 0x10000) {
            units[count++] = 0xD800 + ((c - 0x10000) >> 10);
            c = 0xDC00 + ((c - 0x10000) & 0x3FF);
        }
        units[count++] = c;
        all |= c;
    }
    if (p != close) return GIVEN_UP;
    if (all < 0x100) { /* no unit beyond Latin-1: keep the low bytes */
        uint8_t *low = (uint8_t *)units;
        for (uint32_t i = 0; i < count; i++) low[i] = units[i];
        *string = jeet_new_latin1(r->ctx, low, count);
    } else {
        *string = jeet_new_utf16(r->ctx, units, count);
    }
    if (unit_room > 65536) {
        js_free(r->ctx, units);
        units = NULL;
        unit_room = 0;
    }
    r->p = close + 1;
    return JS_IsException(*string) ? FAILED : READ;
}

/* At the byte after the opening quote. */
static Reading read_string(Reader *r, const uint8_t *end, JSValue *string) {
    const uint8_t *start = r->p, *stop = plain_end(start, end);
    if (*stop != '"') return read_units(r, start, end, string);
    *string = jeet_new_latin1(r->ctx, start, stop - start);
    r->p = stop + 1;
    return JS_IsException(*string) ? FAILED : READ;
}

static Reading read_long_name(Reader *r, const uint8_t *end, JSAtom *name) {
    JSValue string;
    Reading done = read_string(r, end, &string);
    if (done != READ) return done;
    *name = jeet_find_atom(r->ctx, string);
    return *name == JS_ATOM_NULL ? FAILED : READ;
}

/* A name, at the byte after its opening quote. Names that start with a digit are often many, and not for the table. */
static Reading read_name(Reader *r, const uint8_t *end, JSAtom *name) {
    const uint8_t *start = r->p, *p = start;
    uint32_t hash = 0;
    while (*p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\') hash = hash * 31 + *p++;
    uint32_t len = p - start;
    if (*p != '"' || len == 0 || len > NAME_BYTES || *start <= '9') return read_long_name(r, end, name);
    Name *known = &names[(hash ^ hash >> 8) & (NAMES - 1)];
    if (known->atom == JS_ATOM_NULL || known->len != len || memcmp(known->text, start, len) != 0) {
        JSAtom atom;
        Reading done = read_long_name(r, end, &atom);
        if (done != READ) return done;
        JS_FreeAtom(r->ctx, known->atom);
        known->atom = atom;
        known->len = len;
        memcpy(known->text, start, len);
    }
    r->p = p + 1;
    *name = JS_DupAtom(r->ctx, known->atom);
    return READ;
}

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7, 1e8, 1e9, 1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static Reading read_number(Reader *r, JSValue *number) {
    const uint8_t *start = r->p, *p = start;
    uint64_t digits = 0;
    uint32_t places = 0;
    bool exact = true;
    if (*p == '-') p++;
    if (!is_digit(*p) || (*p == '0' && is_digit(p[1]))) return GIVEN_UP;
    const uint8_t *first = p;
    while (is_digit(*p)) digits = digits * 10 + (*p++ - '0');
    uint32_t count = p - first;
    if (*p == '.') {
        const uint8_t *point = p++;
        if (!is_digit(*p)) return GIVEN_UP;
        while (is_digit(*p)) digits = digits * 10 + (*p++ - '0');
        places = p - point - 1;
        count += places;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '+' || *p == '-') p++;
        if (!is_digit(*p)) return GIVEN_UP;
        while (is_digit(*p)) p++;
        exact = false;
    }
    r->p = p;
    bool negative = *start == '-';
    if (!exact || count > 15) {
        *number = JS_NewFloat64(r->ctx, strtod((const char *)start, NULL));
    } else if (places) {
        double value = (double)digits / powers[places]; /* both are exact, so this is rounded as the text is */
        *number = JS_NewFloat64(r->ctx, negative ? -value : value);
    } else if (digits <= INT32_MAX && (digits || !negative)) {
        *number = JS_NewInt32(r->ctx, negative ? -(int32_t)digits : (int32_t)digits);
    } else {
        *number = JS_NewFloat64(r->ctx, negative ? -(double)digits : (double)digits);
    }
    return READ;
}

static Reading read_word(Reader *r, const char *word, size_t len, JSValue value, JSValue *found) {
    if (strncmp((const char *)r->p, word, len) != 0) return GIVEN_UP;
    r->p += len;
    *found = value;
    return READ;
}

static Reading read_scalar(Reader *r, const uint8_t *end, JSValue *value) {
    switch (*r->p) {
    case '"': r->p++; return read_string(r, end, value);
    case 't': return read_word(r, "true", 4, JS_TRUE, value);
    case 'f': return read_word(r, "false", 5, JS_FALSE, value);
    case 'n': return read_word(r, "null", 4, JS_NULL, value);
    default: return read_number(r, value);
    }
}

/* The name of the next property and its colon. */
static Reading next_name(Reader *r, const uint8_t *end, Frame *frame) {
    skip_space(r);
    if (*r->p != '"') return GIVEN_UP;
    r->p++;
    Reading done = read_name(r, end, &frame->name);
    if (done != READ) return done;
    skip_space(r);
    if (*r->p != ':') return GIVEN_UP;
    r->p++;
    return READ;
}

/* Puts a finished value into its container; the frame no longer waits for it. */
static Reading place(Reader *r, Frame *frame, JSValue value) {
    if (frame->is_array) return jeet_push(r->ctx, frame->container, value) < 0 ? FAILED : READ;
    int status = jeet_define(r->ctx, frame->container, frame->name, value);
    JS_FreeAtom(r->ctx, frame->name);
    frame->name = JS_ATOM_NULL;
    return status < 0 ? FAILED : READ;
}

static Reading read_value(Reader *r, const uint8_t *end, uint32_t *depth, JSValue *result) {
    for (;;) {
        JSValue value;
        Reading done;
        skip_space(r);
        if (*r->p == '{' || *r->p == '[') {
            bool is_array = *r->p++ == '[';
            if (*depth == MOST_DEPTH) return GIVEN_UP;
            JSValue container = is_array ? JS_NewArray(r->ctx) : JS_NewObject(r->ctx);
            if (JS_IsException(container)) return FAILED;
            Frame *frame = &frames[(*depth)++];
            *frame = (Frame){container, JS_ATOM_NULL, is_array};
            skip_space(r);
            if (*r->p != (is_array ? ']' : '}')) {
                if (is_array) continue;
                if ((done = next_name(r, end, frame)) != READ) return done;
                continue;
            }
            r->p++;
            (*depth)--;
            value = container;
        } else if ((done = read_scalar(r, end, &value)) != READ) {
            return done;
        }
        /* A value is complete, and with it perhaps the containers around it. */
        for (;;) {
            if (*depth == 0) {
                *result = value;
                return READ;
            }
            Frame *frame = &frames[*depth - 1];
            if ((done = place(r, frame, value)) != READ) return done;
            skip_space(r);
            uint8_t c = *r->p;
            if (c == ',') {
                r->p++;
                if (!frame->is_array && (done = next_name(r, end, frame)) != READ) return done;
                break;
            }
            if (c != (frame->is_array ? ']' : '}')) return GIVEN_UP;
            r->p++;
            (*depth)--;
            value = frame->container;
        }
    }
}

JSValue jeet_json_parse(JSContext *ctx, const uint8_t *text, uint32_t len) {
    Reader reader = {ctx, text};
    uint32_t depth = 0;
    JSValue result = JS_UNDEFINED;
    Reading done = read_value(&reader, text + len, &depth, &result);
    while (depth > 0) {
        Frame *frame = &frames[--depth];
        JS_FreeAtom(ctx, frame->name);
        JS_FreeValue(ctx, frame->container);
    }
    if (done == READ) {
        skip_space(&reader);
        if (reader.p == text + len) return result;
        JS_FreeValue(ctx, result);
    }
    return done == FAILED ? JS_EXCEPTION : JS_UNDEFINED;
}
