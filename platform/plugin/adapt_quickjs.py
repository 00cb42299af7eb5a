"""What is changed in QuickJS's sources before they are compiled: little, by rule, and checked to fit the version.

Its stack limit is made to see what recursion takes of wasm's own stack (src/charge.h says why). Measured with a limit
of 256 KiB (tests/plugin/test_stack.py holds it): without charges, recursion through JavaScript functions takes 2.4 to 4
bytes of the host's stack per byte of the limit, nested JSON 13 to 17, and proxies of proxies up to 68; with them,
nothing takes more than 4.
"""

from __future__ import annotations

import re

# Bytes charged to each call of a function, for recursion that runs through no function with a large frame of its own.
QUICKJS_CHARGES = {
    "json_parse_value": 64,
    "internalize_json_property": 64,
    "js_json_to_str": 96,
    "JS_FlattenIntoArray": 96,
    "js_parse_assign_expr2": 448,
    "js_parse_unary": 112,
    "js_parse_template": 160,
    "js_proxy_getPrototypeOf": 128,
    "js_proxy_setPrototypeOf": 128,
    "js_proxy_has": 128,
    "js_proxy_get": 64,
    "js_proxy_set": 64,
    "js_proxy_get_own_property": 64,
    "js_proxy_define_own_property": 128,
    "js_proxy_delete_property": 128,
    "js_proxy_get_own_property_names": 160,
    "js_iterator_helper_next": 160,
    "JS_OrdinaryIsInstanceOf": 128,
    "js_call_bound_function": 192,
    "js_error_constructor": 128,
    "JS_CopyDataProperties": 96,
    "async_func_resume": 64,
    "js_array_join": 96,
    "js_parse_class": 128,
}
LIBREGEXP_CHARGES = {
    "re_parse_nested_class": 96,
}
CHARGES = {"quickjs.c": QUICKJS_CHARGES, "libregexp.c": LIBREGEXP_CHARGES}

# Recursion that QuickJS does not limit at all: the check, and what to return past the limit.
CHECKS = {
    "js_iterator_helper_next": "JS_EXCEPTION",
    "JS_OrdinaryIsInstanceOf": "-1",
}


_FREE_MODULE = "void js_free_module_def(JSContext *ctx, JSModuleDef *m)"
REPLACEMENTS = {
    "quickjs.c": {
        # wasm has no computed jumps: a switch dispatches byte code 7 to 15 % faster than what they are turned into.
        "#define DIRECT_DISPATCH  1": "#define DIRECT_DISPATCH  0",
        # QuickJS keeps every module that it ever saw; the plugin forgets those that were only compiled or invoked.
        f"static {_FREE_MODULE};": f"{_FREE_MODULE};",
        f"static {_FREE_MODULE}\n{{": f"{_FREE_MODULE}\n{{",
        # A collection of state has no prototype to set and cannot be frozen, and says so itself (src/state.c).
        "    if (sh->proto == proto)\n        return true;\n    if (p == ": (
            "    if (sh->proto == proto)\n        return true;\n"
            "    if (jeet_is_collection(ctx, obj))\n        return jeet_refuse_prototype(ctx, obj);\n    if (p == "
        ),
        "        return js_proxy_preventExtensions(ctx, obj);\n": (
            "        return js_proxy_preventExtensions(ctx, obj);\n"
            "    if (jeet_is_collection(ctx, obj))\n        return jeet_refuse_preventing(ctx, obj);\n"
        ),
        "static const JSClassExoticMethods js_proxy_exotic_methods;\n": (
            "static const JSClassExoticMethods js_proxy_exotic_methods;\n"
            "extern bool jeet_is_collection(JSContext *ctx, JSValueConst object);\n"
            "extern int jeet_refuse_prototype(JSContext *ctx, JSValueConst object);\n"
            "extern int jeet_refuse_preventing(JSContext *ctx, JSValueConst object);\n"
        ),
        # The reason why there is no message is the same.
        '"Invalid error message"': '"out of memory"',
        # Code cut short for want of memory is read past its end by what resolves the names in it.
        "    int scope;\n\n    cc.bc_buf = bc_buf": (
            "    int scope;\n\n    if (dbuf_error(&s->byte_code)) {\n        JS_ThrowOutOfMemory(ctx);\n"
            "        return -1;\n    }\n    cc.bc_buf = bc_buf"
        ),
        # When there is no memory for the error either, QuickJS throws null; the plugin keeps an error ready.
        "throw JS_NULL to avoid recursing */\n        obj = JS_NULL;": (
            "throw one that is ready */\n        extern JSValue jeet_out_of_memory(JSContext *ctx);\n"
            "        obj = jeet_out_of_memory(ctx);"
        ),
    }
}


# What the plugin's own C sees of the inside of values (src/inside.h): compiled in the same unit, behind all else.
ENDS = {"quickjs.c": '\n#include "../src/inside_quickjs.h"\n'}


def adapt(file: str, source: str) -> str:
    """A source file with its replacements and end, and the charges and checks at the start of each function named."""
    for old, new in REPLACEMENTS.get(file, {}).items():
        if source.count(old) != 1:
            raise ValueError(f"{file} has {source.count(old)} times {old}")
        source = source.replace(old, new)
    for name, size in CHARGES.get(file, {}).items():
        first = f"    JEET_CHARGE({size});\n"
        if name in CHECKS:
            first += "    if (js_check_stack_overflow(ctx->rt, 0)) {\n        JS_ThrowStackOverflow(ctx);\n"
            first += f"        return {CHECKS[name]};\n    }}\n"
        head = re.compile(rf"^[A-Za-z][^\n;{{}}=]*\b{name}\([^;{{}}]*\)\n{{\n", re.MULTILINE)
        source, count = head.subn(rf"\g<0>{first}", source)
        if count != 1:
            raise ValueError(f"{file} defines {name} {count} times")
    return source + ENDS.get(file, "")
