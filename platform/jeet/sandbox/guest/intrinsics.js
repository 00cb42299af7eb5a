// What the driver uses of the language, taken before any user code runs, and the freezing of it all.
//
// Promise: user code cannot change what the driver or another event sees of the built-ins. Every object that can be
// reached from the globals is frozen, so the driver may call methods such as push and get plainly.
// The "override mistake" (a frozen prototype makes `obj.toString = f` throw) is undone for what ordinary code assigns on
// plain objects, functions and errors, and for all of dates, regular expressions and promises: these become accessors
// whose setter defines an own property on the receiver. Arrays, Maps and Sets are left as they are, as accessors would
// make each call of theirs slower: there the error says what to do.

const { stringify, parse } = JSON;
const { freeze, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, setPrototypeOf, create, keys: keysOf, hasOwn } = Object;
const { isArray } = Array;
const { ownKeys, apply } = Reflect;
const { floor } = Math;
const NativePromise = Promise;
const NativeDate = Date;
const ObjectPrototype = Object.prototype;
const classOf = ObjectPrototype.toString;
const sourceOf = Function.prototype.toString;
const MAX_INTEGER = 9007199254740991;

// What the built-in plugin has beyond Javy, or null.
const native = typeof Javy.Jeet === 'object' ? takeExtras(Javy.Jeet) : null;

function takeExtras(extras) {
  const taken = {};
  for (const name of ownKeys(extras)) taken[name] = extras[name];
  return freeze(taken);
}

function hidden(target, name, value) {
  defineProperty(target, name, { value, writable: false, enumerable: false, configurable: false });
}

const ASSIGNED_BY_ORDINARY_CODE = [
  'constructor', 'toString', 'toLocaleString', 'valueOf', 'hasOwnProperty', 'isPrototypeOf', 'propertyIsEnumerable',
  'name', 'message', 'length',
];
const PROTOTYPES_OF_ORDINARY_CODE = [
  Object, Function, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, AggregateError,
];

function forgiveAssignment(prototype, names) {
  for (const name of names) {
    const own = getOwnPropertyDescriptor(prototype, name);
    if (own === undefined || !('value' in own) || !own.configurable) continue;
    const { value } = own;
    defineProperty(prototype, name, {
      get() { return value; },
      set(next) {
        if (this === prototype) throw new TypeError(`${name} of a built-in prototype cannot be changed`);
        defineProperty(this, name, { value: next, writable: true, enumerable: true, configurable: true });
      },
      enumerable: own.enumerable,
      configurable: false,
    });
  }
}

const PROTOTYPES_LEFT = [Array.prototype, Map.prototype, Set.prototype];
const READ_ONLY = /^'([^']+)' is read-only$/;

// What to add to the message of an error that a frozen prototype may have caused.
function frozenHint(message) {
  const found = READ_ONLY.exec(message);
  if (found === null || !PROTOTYPES_LEFT.some((prototype) => hasOwn(prototype, found[1]))) return '';
  return ` (the built-ins are frozen: give an array, Map or Set its own ${found[1]} by Object.defineProperty or in a class)`;
}

// Freezes all objects and constructors that can be reached from the roots. Methods themselves are left alone: nobody
// looks at properties of theirs.
function freezeAll(waiting) {
  const seen = new Set();
  while (waiting.length > 0) {
    const object = waiting.pop();
    if (seen.has(object)) continue;
    seen.add(object);
    freeze(object);
    addToFreeze(waiting, getPrototypeOf(object));
    const names = ownKeys(object);
    for (let i = 0; i < names.length; i++) addToFreeze(waiting, getOwnPropertyDescriptor(object, names[i]).value);
  }
}

function addToFreeze(waiting, value) {
  if (typeof value === 'function' ? hasOwn(value, 'prototype') || value === Function.prototype : typeof value === 'object' && value !== null) {
    waiting.push(value);
  }
}

// Prototypes that no global names.
function hiddenIntrinsics() {
  const found = [
    getPrototypeOf([][Symbol.iterator]()),
    getPrototypeOf(new Map()[Symbol.iterator]()),
    getPrototypeOf(new Set()[Symbol.iterator]()),
    getPrototypeOf(''[Symbol.iterator]()),
    getPrototypeOf(function* () {}),
    getPrototypeOf(async function () {}),
    getPrototypeOf(async function* () {}),
    getPrototypeOf(Int8Array),
  ];
  if (typeof ''.matchAll === 'function') found.push(getPrototypeOf(''.matchAll(/./g)));
  return found;
}

function freezeIntrinsics() {
  for (let i = 0; i < PROTOTYPES_OF_ORDINARY_CODE.length; i++) forgiveAssignment(PROTOTYPES_OF_ORDINARY_CODE[i].prototype, ASSIGNED_BY_ORDINARY_CODE);
  for (const { prototype } of [Date, RegExp, Promise]) forgiveAssignment(prototype, Object.getOwnPropertyNames(prototype));
  const roots = hiddenIntrinsics();
  const names = ownKeys(globalThis);
  for (let i = 0; i < names.length; i++) {
    const { value } = getOwnPropertyDescriptor(globalThis, names[i]);
    if (value !== globalThis) addToFreeze(roots, value);
  }
  freezeAll(roots);
}
