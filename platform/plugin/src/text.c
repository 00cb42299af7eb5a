/* TextEncoder and TextDecoder (UTF-8), as the Encoding standard has them. */
#include <string.h>

#include "plugin.h"

static const uint8_t replacement[3] = {0xEF, 0xBF, 0xBD};

/* Length of the well-formed sequence at p; 0 if it is cut short by the end; -n if its first n bytes are a maximal wrong part. */
static int sequence(const uint8_t *p, const uint8_t *end) {
    uint8_t lead = p[0];
    if (lead < 0x80) return 1;
    int need = lead >= 0xC2 && lead <= 0xDF ? 1 : lead >= 0xE0 && lead <= 0xEF ? 2 : lead >= 0xF0 && lead <= 0xF4 ? 3 : 0;
    if (need == 0) return -1;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i <= need; i++) {
        if (p + i >= end) return 0;
        if (p[i] < low || p[i] > high) return -i;
        low = 0x80;
        high = 0xBF;
    }
    return need + 1;
}

/* Bytes of the prefix that is well formed. */
static size_t valid_prefix(const uint8_t *data, size_t len) {
    const uint8_t *p = data, *end = data + len;
    while (p < end) {
        uint64_t word;
        if (end - p >= 8) {
            memcpy(&word, p, 8);
            if (!(word & 0x8080808080808080ull)) {
                p += 8;
                continue;
            }
        }
        int n = sequence(p, end);
        if (n <= 0) break;
        p += n;
    }
    return p - data;
}

static JSValue encode(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    if (argc < 1 || JS_IsUndefined(argv[0])) return JS_NewUint8ArrayCopy(ctx, NULL, 0);
    size_t len;
    const char *text = JS_ToCStringLen(ctx, &len, argv[0]);
    if (!text) return JS_EXCEPTION;
    JSValue array = JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text, len);
    JS_FreeCString(ctx, text);
    if (JS_IsException(array)) return array;
    uint8_t *bytes = JS_GetUint8Array(ctx, &len, array);
    /* A lone surrogate comes out of QuickJS as ED A0..BF xx. */
    for (uint8_t *p = bytes; len >= 3 && (p = memchr(p, 0xED, bytes + len - 2 - p)); p++)
        if (p[1] >= 0xA0) memcpy(p, replacement, 3);
    return array;
}

static JSValue encode_into(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    if (argc < 2 || JS_GetTypedArrayType(argv[1]) != JS_TYPED_ARRAY_UINT8)
        return JS_ThrowTypeError(ctx, "encodeInto needs a string and an Uint8Array");
    size_t len, room = 0;
    const char *text = JS_ToCStringLen(ctx, &len, argv[0]);
    if (!text) return JS_EXCEPTION;
    uint8_t *target = JS_GetUint8Array(ctx, &room, argv[1]);
    size_t read = 0, written = 0;
    while (written < len) {
        const uint8_t *p = (const uint8_t *)text + written;
        size_t n = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
        if (written + n > room) break;
        memcpy(target + written, p[0] == 0xED && p[1] >= 0xA0 ? replacement : p, n);
        written += n;
        read += n == 4 ? 2 : 1;
    }
    JS_FreeCString(ctx, text);
    JSValue result = JS_NewObject(ctx);
    if (JS_IsException(result)) return result;
    if (JS_DefinePropertyValueStr(ctx, result, "read", JS_NewUint32(ctx, read), JS_PROP_C_W_E) < 0 ||
        JS_DefinePropertyValueStr(ctx, result, "written", JS_NewUint32(ctx, written), JS_PROP_C_W_E) < 0) {
        JS_FreeValue(ctx, result);
        return JS_EXCEPTION;
    }
    return result;
}

typedef struct {
    bool fatal, ignore_bom, started;
    uint8_t held_len; /* of a sequence cut by the end of a streamed part */
    uint8_t held[3];
} Decoder;

static JSClassID encoder_class, decoder_class;

static void decoder_free(JSRuntime *rt, JSValueConst value) { js_free_rt(rt, JS_GetOpaque(value, decoder_class)); }

static JSValue new_encoder(JSContext *ctx, JSValueConst new_target, int argc, JSValueConst *argv) {
    (void)argc;
    (void)argv;
    JSValue proto = JS_GetPropertyStr(ctx, new_target, "prototype");
    if (JS_IsException(proto)) return proto;
    JSValue object = JS_NewObjectProtoClass(ctx, proto, encoder_class);
    JS_FreeValue(ctx, proto);
    return object;
}

static bool is_utf8_label(const char *label, size_t len) {
    static const char *const names[] = {"utf-8", "utf8", "unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "x-unicode20utf8"};
    while (len && strchr("\t\n\f\r ", label[0]) && label[0]) label++, len--;
    while (len && label[len - 1] && strchr("\t\n\f\r ", label[len - 1])) len--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == len && strncasecmp(names[i], label, len) == 0) return true;
    return false;
}

static int read_flag(JSContext *ctx, JSValueConst options, const char *name, bool *flag) {
    if (!JS_IsObject(options)) return 0;
    JSValue value = JS_GetPropertyStr(ctx, options, name);
    if (JS_IsException(value)) return -1;
    int truth = JS_ToBool(ctx, value);
    JS_FreeValue(ctx, value);
    if (truth < 0) return -1;
    *flag = truth != 0;
    return 0;
}

static JSValue new_decoder(JSContext *ctx, JSValueConst new_target, int argc, JSValueConst *argv) {
    if (argc > 0 && !JS_IsUndefined(argv[0])) {
        size_t len;
        const char *label = JS_ToCStringLen(ctx, &len, argv[0]);
        if (!label) return JS_EXCEPTION;
        bool known = is_utf8_label(label, len);
        JSValue error = known ? JS_UNDEFINED : JS_ThrowRangeError(ctx, "The encoding '%s' is not supported: only utf-8 is", label);
        JS_FreeCString(ctx, label);
        if (!known) return error;
    }
    bool fatal = false, ignore_bom = false;
    if (argc > 1 && (read_flag(ctx, argv[1], "fatal", &fatal) < 0 || read_flag(ctx, argv[1], "ignoreBOM", &ignore_bom) < 0))
        return JS_EXCEPTION;
    JSValue proto = JS_GetPropertyStr(ctx, new_target, "prototype");
    if (JS_IsException(proto)) return proto;
    JSValue object = JS_NewObjectProtoClass(ctx, proto, decoder_class);
    JS_FreeValue(ctx, proto);
    if (JS_IsException(object)) return object;
    Decoder *decoder = js_mallocz(ctx, sizeof *decoder);
    if (!decoder) {
        JS_FreeValue(ctx, object);
        return JS_EXCEPTION;
    }
    decoder->fatal = fatal;
    decoder->ignore_bom = ignore_bom;
    JS_SetOpaque(object, decoder);
    return object;
}

/* Bytes of a buffer source. Nothing may run JavaScript between this and the last use of *data. */
static int buffer_source(JSContext *ctx, JSValueConst value, const uint8_t **data, size_t *len) {
    *data = NULL;
    *len = 0;
    if (JS_IsUndefined(value)) return 0;
    if (JS_IsArrayBuffer(value)) {
        *data = JS_GetArrayBuffer(ctx, len, value);
        if (*data || !JS_HasException(ctx)) return 0;
        return -1;
    }
    if (JS_GetTypedArrayType(value) >= 0) {
        size_t offset, bytes, size;
        JSValue buffer = JS_GetTypedArrayBuffer(ctx, value, &offset, &bytes, &size);
        if (JS_IsException(buffer)) return -1;
        size_t total;
        uint8_t *base = JS_GetArrayBuffer(ctx, &total, buffer);
        JS_FreeValue(ctx, buffer); /* the typed array keeps it alive */
        if (!base && JS_HasException(ctx)) return -1;
        if (base && offset <= total && bytes <= total - offset) {
            *data = base + offset;
            *len = bytes;
        }
        return 0;
    }
    if (JS_IsDataView(value)) {
        JSValue buffer = JS_GetPropertyStr(ctx, value, "buffer");
        JSValue offset = JS_GetPropertyStr(ctx, value, "byteOffset");
        JSValue length = JS_GetPropertyStr(ctx, value, "byteLength");
        uint32_t start = 0, bytes = 0;
        size_t total = 0;
        int bad = JS_IsException(buffer) || JS_IsException(offset) || JS_IsException(length) ||
                  JS_ToUint32(ctx, &start, offset) < 0 || JS_ToUint32(ctx, &bytes, length) < 0;
        uint8_t *base = bad ? NULL : JS_GetArrayBuffer(ctx, &total, buffer);
        JS_FreeValue(ctx, buffer);
        JS_FreeValue(ctx, offset);
        JS_FreeValue(ctx, length);
        if (bad || (!base && JS_HasException(ctx))) return -1;
        if (base && start <= total && bytes <= total - start) {
            *data = base + start;
            *len = bytes;
        }
        return 0;
    }
    JS_ThrowTypeError(ctx, "The data to decode must be an ArrayBuffer, a typed array or a DataView");
    return -1;
}

/* The text with each wrong part replaced by U+FFFD. A cut sequence at the end is left to *rest, or replaced if rest is NULL. */
static JSValue decode_lossy(JSContext *ctx, const uint8_t *data, size_t len, size_t *rest) {
    size_t out_len = 0;
    uint8_t *out = js_malloc(ctx, len * 3 + 1);
    if (!out) return JS_EXCEPTION;
    const uint8_t *p = data, *end = data + len;
    while (p < end) {
        int n = sequence(p, end);
        if (n > 0) {
            memcpy(out + out_len, p, n);
            out_len += n;
            p += n;
        } else if (n == 0 && rest) {
            break;
        } else {
            memcpy(out + out_len, replacement, 3);
            out_len += 3;
            p = n == 0 ? end : p - n;
        }
    }
    if (rest) *rest = end - p;
    JSValue text = JS_NewStringLen(ctx, (char *)out, out_len);
    js_free(ctx, out);
    return text;
}

static JSValue decode(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    Decoder *decoder = JS_GetOpaque2(ctx, this_value, decoder_class);
    if (!decoder) return JS_EXCEPTION;
    bool stream = false;
    if (argc > 1 && read_flag(ctx, argv[1], "stream", &stream) < 0) return JS_EXCEPTION;
    const uint8_t *data;
    size_t len;
    if (buffer_source(ctx, argc > 0 ? argv[0] : JS_UNDEFINED, &data, &len) < 0) return JS_EXCEPTION;

    uint8_t *joined = NULL;
    if (decoder->held_len) {
        joined = js_malloc(ctx, decoder->held_len + len);
        if (!joined) return JS_EXCEPTION;
        memcpy(joined, decoder->held, decoder->held_len);
        if (len) memcpy(joined + decoder->held_len, data, len);
        data = joined;
        len += decoder->held_len;
        decoder->held_len = 0;
    }
    const uint8_t *start = data;
    size_t size = len;
    if (!decoder->ignore_bom && !decoder->started && size >= 3 && memcmp(start, "\xEF\xBB\xBF", 3) == 0) {
        start += 3;
        size -= 3;
    }
    JSValue text;
    size_t rest = 0, valid = valid_prefix(start, size);
    if (valid == size) {
        text = JS_NewStringLen(ctx, (const char *)start, size);
    } else if (decoder->fatal) {
        if (stream && sequence(start + valid, start + size) == 0) {
            rest = size - valid;
            text = JS_NewStringLen(ctx, (const char *)start, valid);
        } else {
            text = JS_ThrowTypeError(ctx, "The encoded data was not valid utf-8");
        }
    } else {
        text = decode_lossy(ctx, start, size, stream ? &rest : NULL);
    }
    if (rest && !JS_IsException(text)) {
        decoder->held_len = rest;
        memcpy(decoder->held, start + size - rest, rest);
    }
    /* The mark counts only at the start of the whole stream, which a part that is held back entirely has not begun. */
    decoder->started = stream && (decoder->started || len > rest) && !JS_IsException(text);
    js_free(ctx, joined);
    return text;
}

static JSValue encoding_name(JSContext *ctx, JSValueConst this_value) {
    (void)this_value;
    return JS_NewString(ctx, "utf-8");
}

static JSValue decoder_flag(JSContext *ctx, JSValueConst this_value, int which) {
    Decoder *decoder = JS_GetOpaque2(ctx, this_value, decoder_class);
    if (!decoder) return JS_EXCEPTION;
    return JS_NewBool(ctx, which ? decoder->ignore_bom : decoder->fatal);
}

static const JSCFunctionListEntry encoder_members[] = {
    JS_CFUNC_DEF("encode", 0, encode),
    JS_CFUNC_DEF("encodeInto", 2, encode_into),
    JS_CGETSET_DEF("encoding", encoding_name, NULL),
    JS_PROP_STRING_DEF("[Symbol.toStringTag]", "TextEncoder", JS_PROP_CONFIGURABLE),
};

static const JSCFunctionListEntry decoder_members[] = {
    JS_CFUNC_DEF("decode", 0, decode),
    JS_CGETSET_DEF("encoding", encoding_name, NULL),
    JS_CGETSET_MAGIC_DEF("fatal", decoder_flag, NULL, 0),
    JS_CGETSET_MAGIC_DEF("ignoreBOM", decoder_flag, NULL, 1),
    JS_PROP_STRING_DEF("[Symbol.toStringTag]", "TextDecoder", JS_PROP_CONFIGURABLE),
};

static const JSClassDef encoder_definition = {.class_name = "TextEncoder"};
static const JSClassDef decoder_definition = {.class_name = "TextDecoder", .finalizer = decoder_free};

static int add_class(JSContext *ctx, JSValueConst global, JSClassID *id, const JSClassDef *definition, JSCFunction *constructor,
                     const JSCFunctionListEntry *members, int count) {
    JSRuntime *rt = JS_GetRuntime(ctx);
    JS_NewClassID(rt, id);
    if (JS_NewClass(rt, *id, definition) < 0) return -1;
    JSValue proto = JS_NewObject(ctx);
    if (JS_IsException(proto) || JS_SetPropertyFunctionList(ctx, proto, members, count) < 0) return -1;
    JSValue function = JS_NewCFunction2(ctx, constructor, definition->class_name, 0, JS_CFUNC_constructor, 0);
    if (JS_IsException(function) || JS_SetConstructor(ctx, function, proto) < 0) return -1;
    JS_SetClassProto(ctx, *id, proto);
    return JS_DefinePropertyValueStr(ctx, global, definition->class_name, function, JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
}

int jeet_add_text(JSContext *ctx, JSValueConst global) {
    encoder_class = decoder_class = 0; /* ids belong to a runtime */
    if (add_class(ctx, global, &encoder_class, &encoder_definition, new_encoder, encoder_members, 4) < 0) return -1;
    return add_class(ctx, global, &decoder_class, &decoder_definition, new_decoder, decoder_members, 5) < 0 ? -1 : 0;
}
