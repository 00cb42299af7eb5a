// Operators that keep a value per key. Their state is ordinary state: read, written, undone and expired as user code's is,
// by way of the same objects.

// The collection of an operator. `likely(key, i)` says what key event i will probably ask for, if this one asked for `key`.
function storeOf(name, likely) {
  const known = opened.get(name);
  const collection = known === undefined ? openCollection(name) : known;
  collection.ofOperator = true;
  if (known === undefined && likely !== undefined) collection.likely = likely;
  return collection.table.object;
}

// A key of state that is kept by key and time.
function placeOf(start, key) {
  return `${isoOf(start)}|${key}`;
}

// What events will probably ask for in such state: a place as far from their own time as the one asked for is from this
// event's, in steps of `every`; the same time where events' times are not known ahead. A timer asks for the place that it was
// set for, which `startOf` reads from its name.
function likelyPlaces(operator, every, time, startOf) {
  let askedFirst = '';
  let askedBy = -1;
  let from = 0; // what was asked for, less the step that the asking event is in
  // From an earlier stage events come with their event time.
  const isKnown = () => time === null || spec.plan.inputs[batch.input].internal;
  const stepOf = (i) => (isKnown() ? floor(batch.timestampAt(i) / every) * every : 0);
  return (asked, i) => {
    if (batch.timers) {
      const timer = batch.valueAt(i);
      return timer.operator === operator ? placeOf(startOf(timer.name), batch.keyAt(i)) : null;
    }
    if (askedBy !== shared[SERIAL] || askedFirst !== asked) {
      from = NativeDate.parse(asked.slice(0, asked.indexOf('|'))) - stepOf(shared[INDEX]);
      askedFirst = asked;
      askedBy = shared[SERIAL];
    }
    return placeOf(from + stepOf(i), batch.keyAt(i));
  };
}

function keyOfEvent(what) {
  const key = batch.keyAt(shared[INDEX]);
  if (key === null) throw new TypeError(`${what} needs the event's key, and this one has none: add keyBy before it`);
  return key;
}

function isThenable(value) {
  return typeof value === 'object' && value !== null && typeof value.then === 'function';
}

// Goes on with a result, now or once its promise has settled.
function after(result, go) {
  return isThenable(result) ? NativePromise.resolve(result).then(go) : go(result);
}

// One after the other; answers with a promise if one of them is not done yet.
function each(items, start, act) {
  for (let i = start; i < items.length; i++) {
    const waiting = act(items[i]);
    if (waiting !== undefined) return waiting.then(() => each(items, i + 1, act));
  }
  return undefined;
}

// What goes on or into state must not be the object that user code holds: a later change of one would change the other.
function copyOf(value, where) {
  if (typeof value !== 'object' || value === null) return value;
  return parse(jsonText(value, where, shared[VALUE_LIMIT], 'state_value_bytes'));
}

function accumulated(value, where) {
  if (value === undefined) throw new TypeError(`${where} returned nothing: return the new value`);
  return value;
}

function numberFor(value, where) {
  if (typeof value !== 'number' || value - value !== 0) {
    throw new TypeError(`${where} got ${show(value, 1, []).slice(0, 100)} to add: give a finite number`);
  }
  return value;
}

// (accumulator or undefined, item, context) → the new accumulator, or a promise of it.
function foldOf(how, handler, name) {
  switch (how) {
    case 'count':
      return (acc) => (acc === undefined ? 1 : acc + 1);
    case 'sum':
      return (acc, item, context) => after(handler(item, context), (n) => (acc === undefined ? 0 : acc) + numberFor(n, name));
    case 'reduce':
      return (acc, item, context) =>
        acc === undefined ? copyOf(item, name) : after(handler(acc, item, context), (made) => accumulated(made, name));
    default:
      return (acc, item, context) =>
        after(acc === undefined ? accumulated(handler.init(), `${name}: init`) : acc, (from) =>
          after(handler.add(from, item, context), (made) => accumulated(made, `${name}: add`)));
  }
}

// (accumulator, later accumulator, context) → the accumulator of both.
function mergeOf(how, handler, name) {
  if (how === 'count' || how === 'sum') return (a, b) => a + b;
  const merge = how === 'reduce' ? handler : handler.merge;
  return (a, b, context) => after(merge(a, b, context), (made) => accumulated(made, `${name}: merge`));
}

// reduce, aggregate, count and sum: the value so far goes on at each event.
class PerKey {
  constructor(node, handler) {
    this.name = node.name;
    this.fold = foldOf(node.op, handler, node.name);
    this.next = null;
  }

  run(item, context) {
    const key = keyOfEvent(this.name);
    const store = storeOf(this.name);
    return after(this.fold(store[key], item, context), (value) => {
      store[key] = value;
      return runSteps(this.next, { key, value: copyOf(value, this.name) }, context);
    });
  }
}

// The first of each id within its key goes on.
class Dedupe {
  constructor(node, handler) {
    this.name = node.name;
    this.handler = handler;
    this.next = null;
    this.likely = (asked, i) => {
      const collection = opened.get(this.name);
      const event = batch.valueAt(shared[INDEX]);
      const field = event === null || typeof event !== 'object' ? null : fieldOf(collection, event, parse(asked)[1]);
      const later = field === null ? null : batch.valueAt(i);
      const id = later === null || typeof later !== 'object' ? undefined : later[field];
      return typeof id === 'string' || typeof id === 'number' ? stringify([batch.keyAt(i), `${id}`]) : null;
    };
  }

  run(item, context) {
    const key = keyOfEvent(this.name);
    const store = storeOf(this.name, this.likely);
    return after(this.handler(item, context), (id) => {
      if (typeof id !== 'string' && typeof id !== 'number') {
        throw new TypeError(`${this.name}: the id is ${describeType(id)}: give a string or a number`);
      }
      const seen = stringify([key, `${id}`]);
      if (seen in store) return undefined;
      store[seen] = true;
      return runSteps(this.next, item, context);
    });
  }
}

// A stream as a table: the latest value of each key; null takes it out.
class TableEntry {
  constructor(node) {
    this.name = node.collection;
  }

  run(item) {
    const key = keyOfEvent(`table ${this.name}`);
    const store = storeOf(this.name);
    if (item === null) delete store[key];
    else store[key] = item;
    return undefined;
  }
}
