/* An exception as text, and the end of an instance that cannot go on. */
#include <string.h>
#include <wasi/api.h>

#include "plugin.h"

void jeet_write_stderr(const char *text, size_t len) { jeet_write_all(2, (const uint8_t *)text, len); }

_Noreturn void jeet_die(const char *text) {
    jeet_write_stderr(text, strlen(text));
    __builtin_trap();
}

static char *copy_text(const char *text, size_t len, size_t *out_len) {
    char *copy = heap_malloc(len + 1);
    if (!copy) {
        *out_len = 0;
        return NULL;
    }
    memcpy(copy, text, len);
    copy[len] = 0;
    *out_len = len;
    return copy;
}

/* The value, or for a symbol, which has no string of its own, `Symbol(description)`. */
JSValue jeet_showable(JSContext *ctx, JSValueConst value) {
    if (!JS_IsSymbol(value)) return JS_DupValue(ctx, value);
    JSValue method = JS_GetPropertyStr(ctx, value, "toString");
    if (JS_IsException(method)) return method;
    JSValue shown = JS_Call(ctx, method, value, 0, NULL);
    JS_FreeValue(ctx, method);
    return shown;
}

/* A guest's toString or getter may throw in turn: every step here has a plainer one to fall back to. */
char *jeet_describe_exception(JSContext *ctx, size_t *len, bool *interrupted) {
    static const char unknown[] = "Error: the thrown value cannot be shown";
    JSValue thrown = JS_GetException(ctx);
    if (interrupted) *interrupted = JS_IsUncatchableError(thrown);
    JS_ClearUncatchableError(ctx, thrown);

    JSValue shown = jeet_showable(ctx, thrown);
    size_t message_len = 0, stack_len = 0;
    const char *message = JS_IsException(shown) ? NULL : JS_ToCStringLen(ctx, &message_len, shown);
    if (!message) JS_FreeValue(ctx, JS_GetException(ctx));
    const char *stack = NULL;
    if (JS_IsError(thrown)) {
        JSValue text = JS_GetPropertyStr(ctx, thrown, "stack");
        if (JS_IsString(text)) stack = JS_ToCStringLen(ctx, &stack_len, text);
        if (JS_IsException(text) || (JS_IsString(text) && !stack)) JS_FreeValue(ctx, JS_GetException(ctx));
        JS_FreeValue(ctx, text);
    }

    char *text;
    if (!message) {
        text = copy_text(unknown, sizeof unknown - 1, len);
    } else {
        text = heap_malloc(message_len + stack_len + 2);
        if (text) {
            memcpy(text, message, message_len);
            *len = message_len;
            if (stack_len) {
                text[(*len)++] = '\n';
                memcpy(text + *len, stack, stack_len);
                *len += stack_len;
                while (*len && text[*len - 1] == '\n') (*len)--;
            }
            text[*len] = 0;
        } else {
            *len = 0;
        }
    }
    if (message) JS_FreeCString(ctx, message);
    if (stack) JS_FreeCString(ctx, stack);
    JS_FreeValue(ctx, shown);
    JS_FreeValue(ctx, thrown);
    return text;
}
