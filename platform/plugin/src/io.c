/* Javy.IO and console, over WASI fd_read and fd_write. */
#include <string.h>
#include <wasi/api.h>

#include "plugin.h"

int jeet_write_all(int fd, const uint8_t *data, size_t len) {
    size_t done = 0;
    while (done < len) {
        __wasi_ciovec_t part = {data + done, len - done};
        __wasi_size_t wrote = 0;
        __wasi_errno_t error = __wasi_fd_write(fd, &part, 1, &wrote);
        if (error == __WASI_ERRNO_INTR) continue;
        if (error != 0 || wrote == 0) return -1;
        done += wrote;
    }
    return 0;
}

static int take_arguments(JSContext *ctx, int argc, JSValueConst *argv, int32_t *fd, uint8_t **data, size_t *len) {
    if (argc < 2 || JS_VALUE_GET_TAG(argv[0]) != JS_TAG_INT) {
        JS_ThrowTypeError(ctx, "File descriptor must be a number");
        return -1;
    }
    if (JS_GetTypedArrayType(argv[1]) != JS_TYPED_ARRAY_UINT8) {
        JS_ThrowTypeError(ctx, "Data needs to be an Uint8Array");
        return -1;
    }
    if (JS_ToInt32(ctx, fd, argv[0]) < 0) return -1;
    *data = JS_GetUint8Array(ctx, len, argv[1]);
    return *data || *len == 0 ? 0 : -1;
}

static JSValue read_sync(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    int32_t fd;
    uint8_t *data;
    size_t len = 0;
    if (take_arguments(ctx, argc, argv, &fd, &data, &len) < 0) return JS_EXCEPTION;
    if (fd != 0) return JS_ThrowTypeError(ctx, "Unsupported file descriptor: %d. Only stdin(0) is supported", fd);
    if (len == 0) return JS_NewInt32(ctx, 0);
    __wasi_iovec_t part = {data, len};
    __wasi_size_t got = 0;
    __wasi_errno_t error;
    do {
        error = __wasi_fd_read(0, &part, 1, &got);
    } while (error == __WASI_ERRNO_INTR);
    if (error != 0) return JS_ThrowPlainError(ctx, "fd_read failed: WASI error %d", error);
    return JS_NewUint32(ctx, got);
}

static JSValue write_sync(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv) {
    (void)this_value;
    int32_t fd;
    uint8_t *data;
    size_t len = 0;
    if (take_arguments(ctx, argc, argv, &fd, &data, &len) < 0) return JS_EXCEPTION;
    if (fd != 1 && fd != 2)
        return JS_ThrowTypeError(ctx, "Unsupported file descriptor: %d. Only stdout(1) and stderr(2) are supported", fd);
    if (jeet_write_all(fd, data, len) < 0) return JS_ThrowPlainError(ctx, "fd_write failed");
    return JS_NewUint32(ctx, len);
}

/* The arguments as strings, joined by a space, on one line: what Javy's console writes. */
static JSValue console_write(JSContext *ctx, JSValueConst this_value, int argc, JSValueConst *argv, int fd) {
    (void)this_value;
    size_t len = 0, room = 256;
    char *line = js_malloc(ctx, room);
    if (!line) return JS_EXCEPTION;
    for (int i = 0; i < argc; i++) {
        JSValue shown = jeet_showable(ctx, argv[i]);
        size_t part_len = 0;
        const char *part = JS_IsException(shown) ? NULL : JS_ToCStringLen(ctx, &part_len, shown);
        JS_FreeValue(ctx, shown);
        char *larger = line;
        if (part && len + part_len + 2 > room) {
            room = (len + part_len + 2) * 2;
            larger = js_realloc(ctx, line, room);
        }
        if (!part || !larger) {
            if (part) JS_FreeCString(ctx, part);
            js_free(ctx, line);
            return JS_EXCEPTION;
        }
        line = larger;
        if (i > 0) line[len++] = ' ';
        memcpy(line + len, part, part_len);
        len += part_len;
        JS_FreeCString(ctx, part);
    }
    line[len++] = '\n';
    int failed = jeet_write_all(fd, (const uint8_t *)line, len);
    js_free(ctx, line);
    return failed ? JS_ThrowPlainError(ctx, "fd_write failed") : JS_UNDEFINED;
}

static const JSCFunctionListEntry io_functions[] = {
    JS_CFUNC_DEF2("readSync", 2, read_sync, JS_PROP_C_W_E),
    JS_CFUNC_DEF2("writeSync", 2, write_sync, JS_PROP_C_W_E),
};

static const JSCFunctionListEntry console_functions[] = {
    JS_CFUNC_MAGIC_DEF("log", 0, console_write, 1),   JS_CFUNC_MAGIC_DEF("info", 0, console_write, 1),
    JS_CFUNC_MAGIC_DEF("debug", 0, console_write, 1), JS_CFUNC_MAGIC_DEF("error", 0, console_write, 2),
    JS_CFUNC_MAGIC_DEF("warn", 0, console_write, 2),  JS_CFUNC_MAGIC_DEF("trace", 0, console_write, 2),
};

int jeet_add_io(JSContext *ctx, JSValueConst global) {
    JSValue javy = JS_NewObject(ctx), io = JS_NewObject(ctx), console = JS_NewObject(ctx);
    if (JS_IsException(javy) || JS_IsException(io) || JS_IsException(console)) return -1;
    if (JS_SetPropertyFunctionList(ctx, io, io_functions, 2) < 0) return -1;
    if (JS_SetPropertyFunctionList(ctx, console, console_functions, 6) < 0) return -1;
    if (jeet_add_extras(ctx, javy) < 0) return -1;
    const int hidden = JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE;
    if (JS_DefinePropertyValueStr(ctx, javy, "IO", io, JS_PROP_C_W_E) < 0) return -1;
    if (JS_DefinePropertyValueStr(ctx, global, "Javy", javy, JS_PROP_C_W_E) < 0) return -1;
    return JS_DefinePropertyValueStr(ctx, global, "console", console, hidden) < 0 ? -1 : 0;
}
