// The data-flow graph that a module declares: a value that the host reads at deploy time; steps.js runs it.
//
// A node is { id, op, inputs, line, … } with what the host must know of it; what only runs here is in `handlers`, by id.
// A node that nobody reads further ends in the sink: what comes out of it is an output of the function.
// Operators that keep state name the collection it is in: by their option `name`, else by what they do, numbered from the
// second on.

const OPERATORS = [
  'map', 'filter', 'flatMap', 'peek', 'keyBy', 'merge', 'branch', 'to', 'window', 'reduce', 'aggregate', 'count', 'sum', 'join',
  'dedupe', 'from', 'table', 'onTimer',
];
const LONGEST_NAME = 57; // with `_right` it is still the name of a collection

const nodes = [{ id: 0, op: 'source', inputs: [], line: 0 }];
const handlers = [null];
const names = new Map(); // of operators → the line that took it
const numbers = new Map(); // op → how many there are without a name
const loose = new Map(); // what must be followed by something → [line, what is missing]
let sealed = false;

const NODE = Symbol('node');
const KIND = Symbol('kind');

class Stream {
  constructor(id) {
    hidden(this, NODE, id);
  }

  map(handler) { return addHandler('map', this, handler); }
  filter(handler) { return addHandler('filter', this, handler); }
  flatMap(handler) { return addHandler('flatMap', this, handler); }
  peek(handler) { return addHandler('peek', this, handler); }

  to(name) {
    addNode('to', [this[NODE]], null, { stream: requireName('stream.to', name) });
    return undefined;
  }

  from(name) {
    const made = addNode('source', [], null, { stream: requireName('stream.from', name) });
    loose.set(made[NODE], [nodes[made[NODE]].line, `stream.from(${stringify(name)}) is never read: give it an operator, or take it out`]);
    return made;
  }

  table(name, options) {
    const facts = { stream: requireName('stream.table', name) };
    const given = optionsOf('table', options, ['name', 'ttl']);
    const made = new StreamTable(addState('table', [], null, given, facts)[NODE]);
    loose.set(made[NODE], [nodes[made[NODE]].line, `stream.table(${stringify(name)}) is never read: join it, or take it out`]);
    return freeze(made);
  }

  keyBy(by, options) {
    const { handler, path, text } = selectorOf('keyBy', by);
    const given = optionsOf('keyBy', options, ['partitions', 'name']);
    const { partitions, name } = given;
    const facts = path === undefined ? { text } : { path };
    if (partitions !== undefined) {
      if (typeof partitions !== 'number' || !(partitions >= 1 && partitions <= 1024) || floor(partitions) !== partitions) {
        throw new TypeError(`keyBy: partitions is ${show(partitions, 1, [])}: give a whole number from 1 to 1024`);
      }
      facts.partitions = partitions;
    }
    if (name !== undefined) {
      checkName('keyBy', name);
      const before = nodes.find((node) => node.op === 'keyBy' && node.name === name);
      if (before !== undefined) throw new TypeError(`keyBy: the name ${stringify(name)} is used twice, first in line ${before.line}`);
      facts.name = name;
    }
    return addNode('keyBy', [this[NODE]], handler, facts);
  }

  merge(...others) {
    if (others.length === 0) throw new TypeError('merge takes one or more streams');
    const inputs = [this[NODE]];
    for (let i = 0; i < others.length; i++) {
      const id = streamId('merge', others[i]);
      if (inputs.includes(id)) throw new TypeError('merge was given the same stream twice: each of its events would go on twice');
      inputs.push(id);
    }
    return addNode('merge', inputs, null, {});
  }

  branch(...predicates) {
    if (predicates.length === 0) throw new TypeError('branch takes one or more functions');
    for (let i = 0; i < predicates.length; i++) requireHandler('branch', predicates[i]);
    const of = nodes.length;
    return predicates.map((predicate, place) => addNode('branch', [this[NODE]], predicate, { of, place, ...nameOf(predicate) }));
  }

  reduce(handler, options) {
    return perKey('reduce', this, requireHandler('reduce', handler), optionsOf('reduce', options, ['name', 'ttl']));
  }

  aggregate(options) {
    const given = optionsOf('aggregate', options, ['init', 'add', 'merge', 'name', 'ttl']);
    return perKey('aggregate', this, aggregateOf(given), given);
  }

  count(options) {
    return perKey('count', this, null, optionsOf('count', options, ['name', 'ttl']));
  }

  sum(by, options) {
    return perKey('sum', this, selectorOf('sum', by).handler, optionsOf('sum', options, ['name', 'ttl']));
  }

  window(options) {
    const made = new Windowed(this, windowOf(options));
    loose.set(made, [userLine(new Error().stack), 'window is never used: follow it by aggregate, reduce, count or sum']);
    return made;
  }

  join(other, ...rest) {
    const isTable = other instanceof StreamTable;
    if (!isTable && !(other instanceof Stream)) {
      throw new TypeError(`join takes a stream or stream.table(…) first, not ${describeType(other)}`);
    }
    const at = typeof rest[0] === 'function' ? 0 : 1;
    if (rest.length > at + 1 + (at === 0 ? 1 : 0)) throw new TypeError('join takes a stream or table, options and a handler');
    const handler = requireHandler('join', rest[at]);
    const given = optionsOf('join', rest[1 - at], isTable ? ['kind', 'name'] : ['within', 'kind', 'time', 'delay', 'lateTo', 'idle', 'name']);
    const { kind = 'inner' } = given;
    if (kind !== 'inner' && kind !== 'left') throw new TypeError(`join: kind is ${show(kind, 1, [])}: there are 'inner' and 'left'`);
    const inputs = [this[NODE], other[NODE]];
    if (isTable) {
      const facts = { join: 'table', kind, name: claimName('join', given.name), collections: [], ...textOfHandler(handler) };
      return addNode('join', inputs, { join: handler }, facts);
    }
    if (inputs[0] === inputs[1]) throw new TypeError('join was given the same stream on both sides: give one of them an operator of its own');
    if (given.within === undefined) throw new TypeError("join of two streams takes within, as in { within: '5m' }");
    const within = durationOf(given.within, 'join: within', true);
    const time = given.time === undefined ? null : selectorOf('join: time', given.time);
    const delay = given.delay === undefined ? 0 : durationOf(given.delay, 'join: delay', true);
    const facts = { join: 'stream', kind, within_ms: within, delay_ms: delay };
    if (given.lateTo !== undefined) facts.late_to = requireName('join: lateTo', given.lateTo);
    if (given.idle !== undefined) facts.idle_ms = durationOf(given.idle, 'join: idle');
    describeTime(facts, time);
    facts.name = claimName('join', given.name);
    if (facts.name.length > LONGEST_NAME) throw new TypeError(`join: name is longer than ${LONGEST_NAME} characters`);
    facts.collections = [`${facts.name}_left`, `${facts.name}_right`];
    for (let i = 0; i < 2; i++) claimName('join', facts.collections[i]);
    return addNode('join', inputs, { join: handler, time: time === null ? null : time.handler }, { ...facts, ...textOfHandler(handler) });
  }

  dedupe(by, options) {
    const { handler, path, text } = selectorOf('dedupe', by);
    const given = optionsOf('dedupe', options, ['ttl', 'name']);
    return addState('dedupe', [this[NODE]], handler, given, path === undefined ? { text } : { path });
  }

  onTimer(handler, options) {
    const given = optionsOf('onTimer', options, ['name']);
    requireHandler('onTimer', handler);
    return addNode('onTimer', [this[NODE]], handler, { collection: null, name: claimName('onTimer', given.name) });
  }
}

// The latest value of each key of a stream: for joins.
class StreamTable {
  constructor(id) {
    hidden(this, NODE, id);
  }
}

// A stream in windows: what is made of each is said by one more call.
class Windowed {
  constructor(input, made) {
    hidden(this, NODE, input);
    hidden(this, KIND, made);
    freeze(this);
  }

  aggregate(options) {
    const given = optionsOf('aggregate', options, ['init', 'add', 'merge', 'name']);
    const { init, add, merge } = aggregateOf(given);
    if (this[KIND].window.kind === 'session' && merge === undefined) {
      throw new TypeError('aggregate over session windows takes merge: (a, b) => …, as an event may join two sessions to one');
    }
    return inWindows(this, 'aggregate', { init, add, merge }, given);
  }

  reduce(handler, options) {
    return inWindows(this, 'reduce', requireHandler('reduce', handler), optionsOf('reduce', options, ['name']));
  }

  count(options) {
    return inWindows(this, 'count', null, optionsOf('count', options, ['name']));
  }

  sum(by, options) {
    return inWindows(this, 'sum', selectorOf('sum', by).handler, optionsOf('sum', options, ['name']));
  }
}

// What has no such method says which there are.
function explainMissing(prototype, what, there) {
  setPrototypeOf(prototype, new Proxy(create(null), {
    get(_target, name) {
      if (typeof name === 'symbol' || name === 'then' || name === 'toJSON') return undefined;
      throw new TypeError(`${what}.${name} does not exist: ${there}`);
    },
    set() {
      throw new TypeError(`${what} cannot be changed`);
    },
  }));
}

explainMissing(Stream.prototype, 'stream', `there are ${OPERATORS.join(', ')}`);
explainMissing(StreamTable.prototype, 'table', 'a table is read by stream.join(table, …)');
explainMissing(Windowed.prototype, 'window', 'a window is followed by aggregate, reduce, count or sum');

// Lines of the driver itself start far below any user line: see module.py.
const DRIVER_LINES = 1000000;

function userLine(stack) {
  const places = /function\.mjs:(\d+)/g;
  for (let found = places.exec(stack); found !== null; found = places.exec(stack)) {
    if (+found[1] < DRIVER_LINES) return +found[1];
  }
  return 0;
}

function userStack(stack) {
  const lines = `${stack}`.split('\n');
  const kept = [];
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    const found = /function\.mjs:(\d+)/.exec(line);
    if (found !== null && +found[1] >= DRIVER_LINES) continue;
    if (line.trim() === '' || line.includes('(native)') && kept.length === 0) continue;
    if (line.endsWith(' runEvents (native)')) continue; // the loop that called the handler
    kept.push(line);
  }
  return kept.join('\n');
}

// A mistake that shows only when the whole graph is known, at the line that made it.
function mistakeAt(line, message) {
  const error = new TypeError(message);
  defineProperty(error, 'stack', { value: line > 0 ? `    at function.mjs:${line}` : '' });
  return error;
}

function streamId(op, stream) {
  if (stream instanceof Stream) return stream[NODE];
  if (stream instanceof StreamTable) throw new TypeError(`${op} takes streams, not a table: a table is read by stream.join(table, …)`);
  throw new TypeError(`${op} takes streams, not ${describeType(stream)}`);
}

function addNode(op, inputs, handler, facts) {
  if (sealed) throw new Error(`stream.${op} was called while an event is processed: the graph is declared once, at the top level`);
  const id = nodes.length;
  nodes.push({ id, op, inputs, line: userLine(new Error().stack), ...facts });
  handlers.push(handler);
  for (let i = 0; i < inputs.length; i++) loose.delete(inputs[i]);
  return freeze(new Stream(id));
}

function nameOf(handler) {
  return handler.name ? { name: `${handler.name}` } : {};
}

function addHandler(op, input, handler) {
  requireHandler(`stream.${op}`, handler);
  return addNode(op, [input[NODE]], handler, nameOf(handler));
}

function addState(op, inputs, handler, options, facts) {
  const collection = claimName(op, options.name);
  const ttl = options.ttl === undefined ? {} : { ttl_ms: durationOf(options.ttl, `${op}: ttl`) };
  return addNode(op, inputs, handler, { ...facts, name: collection, collection, ...ttl });
}

function perKey(how, input, handler, options) {
  return addState(how, [input[NODE]], handler, options, {});
}

function inWindows(windowed, how, handler, options) {
  const { window, name, time } = windowed[KIND];
  if (name !== undefined && options.name !== undefined) throw new TypeError(`${how} gives a second name to a window that has one`);
  const collection = claimName('window', name === undefined ? options.name : name);
  const made = addNode('window', [windowed[NODE][NODE]], { how, handler, time }, { window, how, name: collection, collection });
  loose.delete(windowed);
  return made;
}

function aggregateOf({ init, add, merge }) {
  if (typeof init !== 'function' || typeof add !== 'function' || (merge !== undefined && typeof merge !== 'function')) {
    throw new TypeError('aggregate takes { init: () => …, add: (acc, event) => … }, and merge: (a, b) => … for session windows');
  }
  return { init, add, merge };
}

function textOfHandler(handler) {
  return { text: fingerprint(handler) };
}

function checkName(op, name) {
  if (typeof name !== 'string' || !COLLECTION_NAME.test(name)) {
    throw new TypeError(`${op}: name is ${show(name, 1, [])}: a name is a letter, _ or $ followed by letters, digits, _ or $`);
  }
}

// The name of an operator, which names its state: no two may have the same.
function claimName(op, wanted) {
  let name = wanted;
  if (name === undefined) {
    const number = (numbers.get(op) || 0) + 1;
    numbers.set(op, number);
    name = number === 1 ? op : `${op}${number}`;
  } else {
    checkName(op, name);
  }
  const line = names.get(name);
  if (line !== undefined) {
    throw new TypeError(`the name ${stringify(name)} is used twice, first in line ${line}: give ${op} another by its option name`);
  }
  names.set(name, userLine(new Error().stack));
  return name;
}

const stream = freeze(new Stream(0));

function useDefault(handler) {
  nodes.push({ id: nodes.length, op: 'map', inputs: [0], line: 0, name: 'default' });
  handlers.push(handler);
}

// What is wrong with the graph as a whole.
function checkGraph() {
  for (const [line, message] of loose.values()) throw mistakeAt(line, message);
}
