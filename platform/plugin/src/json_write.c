/* The strict writer: a value to JSON text in one pass, without running any JavaScript.
 *
 * It writes what is plain through and through: objects of Object.prototype or of no prototype whose properties are plain
 * values, dense arrays, strings, numbers, booleans, null. Whatever could run code, or is written in another way by some rule, it
 * leaves to guest/strict.js, and likewise what it refuses: the words for it are there. Nesting is kept on a list of
 * frames, not on the stack. */
#include "json.h"

#include <math.h>
#include <string.h>

#include "dtoa.h"

#define MOST_DEPTH 512u
#define MAX_INTEGER 9007199254740991.0
#define LEAST 1e-308 /* a smaller exponent is not for everyone's JSON (number_exponent) */

typedef struct {
    const JeetName *names; /* NULL: an array */
    const JSValue *values;
    uint32_t count, at;
} Frame;

static Frame frames[MOST_DEPTH];

/* For each byte below 0x80 that cannot stand in a string as it is: what follows the backslash; 'u' for the rest. */
static const uint8_t escapes[128] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b', 't', 'n', 'u', 'f', 'r', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', ['"'] = '"', ['\\'] = '\\',
};

#define ONES 0x0101010101010101ull
#define HIGHS 0x8080808080808080ull

/* Not 0 if one of eight bytes is a control character, a quote, a backslash or beyond ASCII. */
static inline uint64_t special(uint64_t word) {
    uint64_t quote = word ^ (ONES * '"'), backslash = word ^ (ONES * '\\');
    return ((word - ONES * 0x20) | (quote - ONES) | (backslash - ONES) | word) & HIGHS;
}

static uint8_t *put_escape(uint8_t *to, uint32_t c) {
    *to++ = '\\';
    *to++ = escapes[c];
    if (escapes[c] != 'u') return to;
    static const char digits[] = "0123456789abcdef";
    memcpy(to, "00", 2);
    to[2] = digits[c >> 4];
    to[3] = digits[c & 15];
    return to + 4;
}

static JeetWriting write_latin1(JSContext *ctx, JeetBytes *out, const uint8_t *p, uint32_t len) {
    const uint8_t *end = p + len;
    if (!jeet_bytes_reserve(ctx, out, (size_t)len + 16)) return JEET_NO_MEMORY;
    uint8_t *to = out->data + out->len;
    *to++ = '"';
    while (p < end) {
        uint64_t word;
        if (end - p >= 8) {
            memcpy(&word, p, 8);
            if (!special(word)) {
                memcpy(to, p, 8);
                to += 8;
                p += 8;
                continue;
            }
        }
        uint32_t c = *p++;
        if (c >= 0x80 || escapes[c]) {
            if (c == 0) return JEET_REFUSED;
            out->len = to - out->data;
            if (!jeet_bytes_reserve(ctx, out, (size_t)(end - p) + 24)) return JEET_NO_MEMORY;
            to = out->data + out->len;
            if (c < 0x80) {
                to = put_escape(to, c);
            } else {
                *to++ = 0xC0 | c >> 6;
                *to++ = 0x80 | (c & 0x3F);
            }
        } else {
            *to++ = c;
        }
    }
    *to++ = '"';
    out->len = to - out->data;
    return JEET_WROTE;
}

static JeetWriting write_utf16(JSContext *ctx, JeetBytes *out, const uint16_t *p, uint32_t len) {
    const uint16_t *end = p + len;
    if (!jeet_bytes_reserve(ctx, out, 3 * (size_t)len + 16)) return JEET_NO_MEMORY;
    uint8_t *to = out->data + out->len;
    *to++ = '"';
    while (p < end) {
        uint32_t c = *p++;
        if (c < 0x80) {
            if (!escapes[c]) {
                *to++ = c;
                continue;
            }
            if (c == 0) return JEET_REFUSED;
            out->len = to - out->data;
            if (!jeet_bytes_reserve(ctx, out, 3 * (size_t)(end - p) + 24)) return JEET_NO_MEMORY;
            to = put_escape(out->data + out->len, c);
        } else if (c < 0x800) {
            *to++ = 0xC0 | c >> 6;
            *to++ = 0x80 | (c & 0x3F);
        } else if (c >= 0xD800 && c <= 0xDFFF) {
            if (c >= 0xDC00 || p == end || *p < 0xDC00 || *p > 0xDFFF) return JEET_REFUSED;
            c = 0x10000 + ((c - 0xD800) << 10) + (*p++ - 0xDC00);
            *to++ = 0xF0 | c >> 18;
            *to++ = 0x80 | (c >> 12 & 0x3F);
            *to++ = 0x80 | (c >> 6 & 0x3F);
            *to++ = 0x80 | (c & 0x3F);
        } else {
            *to++ = 0xE0 | c >> 12;
            *to++ = 0x80 | (c >> 6 & 0x3F);
            *to++ = 0x80 | (c & 0x3F);
        }
    }
    *to++ = '"';
    out->len = to - out->data;
    return JEET_WROTE;
}

/* A string of more characters than the text may still have bytes is refused before any work goes into it. */
static JeetWriting write_text(JSContext *ctx, JeetBytes *out, JeetText text, size_t end) {
    if (text.len > end - out->len) return JEET_REFUSED;
    return text.wide ? write_utf16(ctx, out, text.units, text.len) : write_latin1(ctx, out, text.units, text.len);
}

static JeetWriting write_rope(JSContext *ctx, JeetBytes *out, JSValueConst rope, size_t end) {
    if (jeet_rope_length(rope) > end - out->len) return JEET_REFUSED;
    JSValue string = JS_ToString(ctx, rope);
    if (JS_IsException(string)) return JEET_NO_MEMORY;
    JeetWriting done = write_text(ctx, out, jeet_text(string), end);
    JS_FreeValue(ctx, string);
    return done;
}

static void put_integer(JeetBytes *out, int64_t value) {
    uint8_t digits[20], *p = digits + sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do *--p = '0' + rest % 10; while (rest /= 10);
    if (value < 0) *--p = '-';
    size_t len = digits + sizeof digits - p;
    memcpy(out->data + out->len, p, len);
    out->len += len;
}

/* A number of few decimals. One with at most 15 digits that reads as this very value is the shortest text for it, as no two
 * such texts read as the same value; and a quotient of two exact numbers is rounded as reading the text is. */
static bool put_decimal(JeetBytes *out, double value) {
    double size = fabs(value), scaled = size, power = 1;
    if (size < 1e-5 || size >= 1e9) return false;
    for (int places = 1; places <= 6; places++) {
        power *= 10;
        scaled = nearbyint(size * power);
        if (scaled / power != size) continue;
        int64_t whole = (int64_t)scaled, unit = (int64_t)power;
        if (value < 0) out->data[out->len++] = '-';
        put_integer(out, whole / unit);
        out->data[out->len++] = '.';
        int64_t fraction = whole % unit;
        for (unit /= 10; unit; unit /= 10) out->data[out->len++] = '0' + fraction / unit % 10;
        return true;
    }
    return false;
}

bool jeet_json_write_number(JSContext *ctx, JeetBytes *out, double value) {
    if (!jeet_bytes_reserve(ctx, out, 128)) return false;
    if (fabs(value) <= MAX_INTEGER && value == (double)(int64_t)value) {
        put_integer(out, (int64_t)value);
        return true;
    }
    if (put_decimal(out, value)) return true;
    JSDTOATempMem scratch;
    out->len += js_dtoa((char *)out->data + out->len, value, 10, 0, JS_DTOA_FORMAT_FREE, &scratch);
    return true;
}

static JeetWriting write_float(JSContext *ctx, JeetBytes *out, double value) {
    double size = fabs(value);
    if (!isfinite(value) || (size > MAX_INTEGER && size < 1e21) || (size != 0 && size < LEAST)) return JEET_REFUSED;
    return jeet_json_write_number(ctx, out, value) ? JEET_WROTE : JEET_NO_MEMORY;
}

static JeetWriting write_word(JSContext *ctx, JeetBytes *out, const char *word, size_t len) {
    if (!jeet_bytes_reserve(ctx, out, len)) return JEET_NO_MEMORY;
    memcpy(out->data + out->len, word, len);
    out->len += len;
    return JEET_WROTE;
}

static JeetWriting write_scalar(JSContext *ctx, JeetBytes *out, JSValueConst value, size_t end) {
    switch (JS_VALUE_GET_NORM_TAG(value)) {
    case JS_TAG_INT:
        if (!jeet_bytes_reserve(ctx, out, 16)) return JEET_NO_MEMORY;
        put_integer(out, JS_VALUE_GET_INT(value));
        return JEET_WROTE;
    case JS_TAG_FLOAT64:
        return write_float(ctx, out, JS_VALUE_GET_FLOAT64(value));
    case JS_TAG_STRING:
        return write_text(ctx, out, jeet_text(value), end);
    case JS_TAG_STRING_ROPE:
        return write_rope(ctx, out, value, end);
    case JS_TAG_BOOL:
        return JS_VALUE_GET_BOOL(value) ? write_word(ctx, out, "true", 4) : write_word(ctx, out, "false", 5);
    case JS_TAG_NULL:
        return write_word(ctx, out, "null", 4);
    default:
        return JEET_REFUSED; /* undefined, a symbol, a BigInt */
    }
}

/* Opens the object or array; its frame is the one after `depth` others. */
static JeetWriting open(JSContext *ctx, JeetBytes *out, JSValueConst object, uint32_t depth) {
    JeetView view;
    JeetKind kind = jeet_view(ctx, object, &view);
    if (kind == JEET_EXOTIC) return JEET_UNUSUAL;
    if (!jeet_bytes_reserve(ctx, out, 2)) return JEET_NO_MEMORY;
    out->data[out->len++] = kind == JEET_PLAIN ? '{' : '[';
    frames[depth] = (Frame){view.names, view.values, view.count, 0};
    return JEET_WROTE;
}

/* The name of a property with what stands before and after it. Integers come first in order, whenever they were added: a case
 * for the other writer. */
static JeetWriting write_name(JSContext *ctx, JeetBytes *out, JSAtom atom, size_t end) {
    JeetText text;
    if (JEET_ATOM_IS_INTEGER(atom) || !jeet_atom_text(ctx, atom, &text)) return JEET_UNUSUAL;
    if (text.len == 10 && !text.wide && *(const uint8_t *)text.units <= '9') return JEET_UNUSUAL;
    if (!jeet_bytes_reserve(ctx, out, 1)) return JEET_NO_MEMORY;
    if (out->data[out->len - 1] != '{') out->data[out->len++] = ',';
    JeetWriting done = write_text(ctx, out, text, end);
    if (done != JEET_WROTE) return done;
    return write_word(ctx, out, ":", 1);
}

/* Whether a property has no place in the text: a symbol, or not enumerable. */
static JeetWriting check_property(JSContext *ctx, const JeetName *name, bool *skip) {
    JeetText text;
    *skip = true;
    if (name->atom == JS_ATOM_NULL) return JEET_WROTE;
    if (jeet_is_to_json(name->atom)) return JEET_UNUSUAL;
    uint32_t flags = JEET_NAME_FLAGS(name);
    if (!(flags & JS_PROP_ENUMERABLE)) return JEET_WROTE;
    if (!JEET_ATOM_IS_INTEGER(name->atom) && !jeet_atom_text(ctx, name->atom, &text)) return JEET_WROTE;
    if (flags & JS_PROP_TMASK) return JEET_UNUSUAL;
    *skip = false;
    return JEET_WROTE;
}

static JeetWriting write_all(JSContext *ctx, JeetBytes *out, JSValueConst value, size_t end, uint32_t most) {
    uint32_t depth = 0;
    JeetWriting done = JEET_WROTE;
    if (!JS_IsObject(value)) return write_scalar(ctx, out, value, end);
    if (most == 0) return JEET_REFUSED;
    if (!jeet_json_is_plain(ctx)) return JEET_UNUSUAL;
    if ((done = open(ctx, out, value, depth++)) != JEET_WROTE) return done;
    while (depth > 0) {
        Frame *frame = &frames[depth - 1];
        if (out->len > end) return JEET_REFUSED;
        if (frame->at == frame->count) {
            if (!jeet_bytes_reserve(ctx, out, 1)) return JEET_NO_MEMORY;
            out->data[out->len++] = frame->names ? '}' : ']';
            depth--;
            continue;
        }
        uint32_t at = frame->at++;
        if (frame->names) {
            bool skip;
            if ((done = check_property(ctx, &frame->names[at], &skip)) != JEET_WROTE) return done;
            if (skip) continue;
            if ((done = write_name(ctx, out, frame->names[at].atom, end)) != JEET_WROTE) return done;
        } else if (at > 0) {
            if (!jeet_bytes_reserve(ctx, out, 1)) return JEET_NO_MEMORY;
            out->data[out->len++] = ',';
        }
        JSValueConst item = frame->values[at];
        if (JS_IsObject(item)) {
            if (depth == most) return most == MOST_DEPTH ? JEET_UNUSUAL : JEET_REFUSED;
            done = open(ctx, out, item, depth++);
        } else {
            done = write_scalar(ctx, out, item, end);
        }
        if (done != JEET_WROTE) return done;
    }
    return JEET_WROTE;
}

JeetWriting jeet_json_write(JSContext *ctx, JeetBytes *out, JSValueConst value, size_t limit, uint32_t depth) {
    uint32_t before = out->len;
    size_t end = before + (limit < JEET_BYTES_LIMIT ? limit : JEET_BYTES_LIMIT);
    JeetWriting done = write_all(ctx, out, value, end, depth < MOST_DEPTH ? depth : MOST_DEPTH);
    if (done == JEET_WROTE && out->len > end) done = JEET_REFUSED;
    if (done != JEET_WROTE) out->len = before;
    return done;
}
