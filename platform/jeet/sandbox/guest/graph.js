// The data-flow graph that a module declares: a value that the host reads at deploy time, and the steps that run it.
//
// A node is { id, op, inputs, line, … } with what the host must know of it; its handler stays here, by id.
// A node that nobody reads further ends in the sink: what comes out of it is an output of the function.

const AVAILABLE = ['map', 'filter', 'flatMap', 'peek', 'to'];
const LATER = ['keyBy', 'merge', 'branch', 'window', 'reduce', 'aggregate', 'join', 'dedupe', 'from', 'table', 'onTimer'];

const nodes = [{ id: 0, op: 'source', inputs: [], line: 0 }];
const handlers = [null];
let sealed = false;

class Stream {
  constructor(id) {
    hidden(this, NODE, id);
  }

  map(handler) { return addNode('map', this, handler); }
  filter(handler) { return addNode('filter', this, handler); }
  flatMap(handler) { return addNode('flatMap', this, handler); }
  peek(handler) { return addNode('peek', this, handler); }

  to(name) {
    if (typeof name !== 'string' || name === '') throw new TypeError('stream.to takes the name of a stream');
    const made = addNode('to', this, null);
    nodes[made[NODE]].stream = name;
    return undefined;
  }
}
const NODE = Symbol('node');

setPrototypeOf(Stream.prototype, new Proxy(create(null), {
  get(_target, name) {
    if (typeof name === 'symbol' || name === 'then' || name === 'toJSON') return undefined;
    const what = LATER.includes(name) ? 'is not available in this version of Jeet' : 'does not exist';
    throw new TypeError(`stream.${name} ${what}: there are ${AVAILABLE.join(', ')}`);
  },
  set() {
    throw new TypeError('stream cannot be changed');
  },
}));

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

function addNode(op, input, handler) {
  if (sealed) throw new Error(`stream.${op} was called while an event is processed: the graph is declared once, at the top level`);
  if (op !== 'to' && typeof handler !== 'function') {
    throw new TypeError(`stream.${op} takes a function, not ${describeType(handler)}`);
  }
  const id = nodes.length;
  const node = { id, op, inputs: [input[NODE]], line: userLine(new Error().stack) };
  if (handler !== null && handler.name) node.name = `${handler.name}`;
  nodes.push(node);
  handlers.push(handler);
  return freeze(new Stream(id));
}

const stream = freeze(new Stream(0));

function useDefault(handler) {
  nodes.push({ id: nodes.length, op: 'map', inputs: [0], line: 0, name: 'default' });
  handlers.push(handler);
}

// Steps: what runs after a node has an item. kind 0 map, 1 filter, 2 flatMap, 3 peek, 4 output.
function buildSteps() {
  sealed = true;
  const steps = [];
  for (let id = 0; id < nodes.length; id++) steps.push({ kind: -1, handler: handlers[id], next: [], column: null });
  for (let id = 1; id < nodes.length; id++) {
    const node = nodes[id];
    const step = steps[id];
    step.kind = ['map', 'filter', 'flatMap', 'peek', 'to'].indexOf(node.op);
    if (node.op === 'to') {
      step.column = columnsByName.get(node.stream);
      step.where = `to(${stringify(node.stream)})`;
      if (step.column === undefined) throw new InternalFault(`stream ${node.stream} is not among the declared outputs`);
    }
    steps[node.inputs[0]].next.push(step);
  }
  const sink = spec.sink ? columns[0] : null;
  for (let id = 1; id < nodes.length; id++) {
    if (steps[id].kind !== 4 && steps[id].next.length === 0) {
      steps[id].next.push({ kind: 4, handler: null, next: [], column: sink, where: 'the result' });
    }
  }
  return steps[0].next;
}

// Whether a handler could look at its second argument. Only the plainest forms are known not to.
const ONE_ARGUMENT = /^(?:async\s+)?(?:function\s*[\w$]*\s*)?\(?\s*(?:[\w$]+|\{[\w$\s,:]*\})\s*\)?\s*(?:=>|\{)/;

function takesContext(handler) {
  if (handler.length !== 1) return true;
  const text = apply(sourceOf, handler, []);
  return !ONE_ARGUMENT.test(text) || /\barguments\b|\beval\b/.test(text);
}

// Gives an item to each of the steps; answers with a promise if one of them is not done yet.
function runSteps(steps, item, context) {
  for (let i = 0; i < steps.length; i++) {
    const waiting = runStep(steps[i], item, context);
    if (waiting !== undefined) {
      if (i + 1 === steps.length) return waiting;
      const rest = steps.slice(i + 1);
      return waiting.then(() => runSteps(rest, item, context));
    }
  }
  return undefined;
}

function runStep(step, item, context) {
  if (step.kind === 4) {
    if (step.column !== null) step.column.add(item, undefined, step.where);
    return undefined;
  }
  const result = step.handler(item, context);
  if (typeof result === 'object' && result !== null && typeof result.then === 'function') {
    return NativePromise.resolve(result).then((settled) => afterStep(step, item, settled, context));
  }
  return afterStep(step, item, result, context);
}

function afterStep(step, item, result, context) {
  switch (step.kind) {
    case 0: // no result: nothing goes on
      if (result === undefined || result === null) return undefined;
      return runSteps(step.next, result, context);
    case 1:
      return result ? runSteps(step.next, item, context) : undefined;
    case 2:
      return spread(step, result, context);
    default:
      return runSteps(step.next, item, context);
  }
}

function spread(step, result, context) {
  if (result === undefined || result === null) return undefined;
  if (typeof result === 'string' || typeof result[Symbol.iterator] !== 'function') {
    throw new TypeError(`flatMap must return an array or another iterable, not ${describeType(result)}`);
  }
  const items = isArray(result) ? result : Array.from(takeAtMost(result));
  return spreadFrom(step, items, 0, context);
}

function* takeAtMost(iterable) {
  let taken = 0;
  for (const item of iterable) {
    if (taken++ >= outputsPerEvent) throw new RangeError(`flatMap gave more than ${outputsPerEvent} items (outputs_per_event)`);
    yield item;
  }
}

function spreadFrom(step, items, start, context) {
  for (let i = start; i < items.length; i++) {
    const waiting = runSteps(step.next, items[i], context);
    if (waiting !== undefined) return waiting.then(() => spreadFrom(step, items, i + 1, context));
  }
  return undefined;
}
