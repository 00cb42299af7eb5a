/* The end of quickjs.c: see inside.h. */
#include "../src/inside.h"

_Static_assert(sizeof(JeetName) == sizeof(JSShapeProperty) && sizeof(JSProperty) == sizeof(JSValue), "views of properties");
_Static_assert(JS_PROP_ENUMERABLE < 64 && JS_PROP_TMASK < 64, "flags of properties");

JeetKind jeet_view(JSContext *ctx, JSValueConst object, JeetView *view) {
    const JSObject *p = JS_VALUE_GET_OBJ(object);
    JSShape *shape = p->shape;
    if (p->class_id == JS_CLASS_OBJECT) {
        if (p->is_exotic || (shape->proto && shape->proto != JS_VALUE_GET_OBJ(ctx->class_proto[JS_CLASS_OBJECT])))
            return JEET_EXOTIC;
        *view = (JeetView){(const JeetName *)get_shape_prop(shape), (const JSValue *)p->prop, shape->prop_count};
        return JEET_PLAIN;
    }
    if (p->class_id != JS_CLASS_ARRAY || !p->fast_array || shape->prop_count != 1 ||
        shape->proto != JS_VALUE_GET_OBJ(ctx->class_proto[JS_CLASS_ARRAY]) ||
        JS_VALUE_GET_TAG(p->prop[0].u.value) != JS_TAG_INT ||
        (uint32_t)JS_VALUE_GET_INT(p->prop[0].u.value) != p->u.array.count)
        return JEET_EXOTIC;
    *view = (JeetView){NULL, p->u.array.u.values, p->u.array.count};
    return JEET_DENSE;
}

const JSValue *jeet_own_value(JSValueConst plain, JSAtom atom) {
    JSProperty *property;
    const JSShapeProperty *found = find_own_property(&property, JS_VALUE_GET_OBJ(plain), atom);
    return found && (found->flags & JS_PROP_TMASK) == JS_PROP_NORMAL ? &property->u.value : NULL;
}

bool jeet_json_is_plain(JSContext *ctx) {
    JSObject *object = JS_VALUE_GET_OBJ(ctx->class_proto[JS_CLASS_OBJECT]);
    JSObject *array = JS_VALUE_GET_OBJ(ctx->class_proto[JS_CLASS_ARRAY]);
    return array->shape->proto == object && !object->shape->proto && !find_own_property1(object, JS_ATOM_toJSON) &&
           !find_own_property1(array, JS_ATOM_toJSON);
}

bool jeet_is_to_json(JSAtom atom) { return atom == JS_ATOM_toJSON; }

static JeetText text_of(JSString *p) {
    return (JeetText){p->is_wide_char ? (const void *)str16(p) : str8(p), p->len, p->is_wide_char};
}

JeetText jeet_text(JSValueConst string) { return text_of(JS_VALUE_GET_STRING(string)); }

uint32_t jeet_rope_length(JSValueConst rope) { return JS_VALUE_GET_STRING_ROPE(rope)->len; }

bool jeet_atom_text(JSContext *ctx, JSAtom atom, JeetText *text) {
    if (__JS_AtomIsTaggedInt(atom)) return false;
    JSAtomStruct *p = ctx->rt->atom_array[atom];
    if (p->atom_type != JS_ATOM_TYPE_STRING) return false;
    *text = text_of(p);
    return true;
}

JSValue jeet_new_latin1(JSContext *ctx, const uint8_t *units, uint32_t len) {
    return js_new_string8_len(ctx, (const char *)units, len);
}

JSValue jeet_new_utf16(JSContext *ctx, const uint16_t *units, uint32_t len) { return js_new_string16_len(ctx, units, len); }

JSAtom jeet_find_atom(JSContext *ctx, JSValue string) {
    JSAtom atom = JS_NewAtomStr(ctx, JS_VALUE_GET_STRING(string));
    if (atom == JS_ATOM_NULL) JS_ThrowOutOfMemory(ctx);
    return atom;
}

int jeet_define(JSContext *ctx, JSValueConst fresh, JSAtom atom, JSValue value) {
    JSObject *p = JS_VALUE_GET_OBJ(fresh);
    JSProperty *property;
    if (find_own_property(&property, p, atom)) { /* the last of equal names wins, at the place of the first */
        set_value(ctx, &property->u.value, value);
        return 0;
    }
    property = add_property(ctx, p, atom, JS_PROP_C_W_E);
    if (!property) {
        JS_FreeValue(ctx, value);
        return -1;
    }
    property->u.value = value;
    return 0;
}

int jeet_push(JSContext *ctx, JSValueConst fresh, JSValue value) {
    return add_fast_array_element(ctx, JS_VALUE_GET_OBJ(fresh), value, JS_PROP_THROW) < 0 ? -1 : 0;
}
