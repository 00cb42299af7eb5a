// The steps that run the part of the graph that is this stage: what happens to an item after a node has given it on.
//
// A step's kind is 0 map, 1 filter, 2 flatMap, 3 peek, 4 output, or 5: an operator with a run(item, context) of its own.
// Each answers with a promise if it is not done yet, else with undefined.

const KINDS = ['map', 'filter', 'flatMap', 'peek'];
const OUTPUT = 4;
const OPERATOR = 5;

let entries = []; // of each input of the plan: the steps that its events enter by
let timerSteps = null; // what runs timers that are due
let notesAtEntry = []; // of each input: whether the time of each of its events counts, whatever becomes of the event

class StageBuilder {
  constructor() {
    const { inputs, cuts } = spec.plan;
    this.inputs = inputs;
    this.cuts = new Map(); // node → the cuts there
    for (let i = 0; i < cuts.length; i++) {
      const here = this.cuts.get(cuts[i].node);
      if (here === undefined) this.cuts.set(cuts[i].node, [cuts[i]]);
      else here.push(cuts[i]);
    }
    this.entered = new Set();
    for (let i = 0; i < inputs.length; i++) for (const node of inputs[i].nodes) this.entered.add(node);
    this.readers = nodes.map(() => []);
    for (let id = 0; id < nodes.length; id++) {
      const read = new Set(nodes[id].inputs);
      for (const input of read) this.readers[input].push(nodes[id]);
    }
    this.known = new Map(); // node → the steps after it
    this.operators = new Map(); // node → its operator
    this.behinds = new Map(); // node → what behind() has found
    this.sink = spec.sink ? columns[0] : null;
    this.userTimers = new UserTimers();
  }

  // The steps by which an input's events enter.
  entriesOf(input) {
    const steps = [];
    for (let i = 0; i < input.nodes.length; i++) {
      const node = nodes[input.nodes[i]];
      if (node === undefined) throw new InternalFault(`the plan enters at node ${input.nodes[i]}, which is not there`);
      if (this.cuts.has(node.id)) steps.push(...this.cutSteps(node));
      else if (node.op === 'table') steps.push({ kind: OPERATOR, handler: null, next: [], operator: new TableEntry(node) });
      else steps.push(...this.after(node));
    }
    return steps;
  }

  // The steps after a node.
  after(node) {
    const known = this.known.get(node.id);
    if (known !== undefined) return known;
    const steps = [];
    this.known.set(node.id, steps);
    const readers = this.readers[node.id];
    for (let i = 0; i < readers.length; i++) steps.push(...this.into(readers[i], node.id));
    if (!readers.some(({ op }) => op !== 'onTimer') && node.op !== 'source') {
      steps.push({ kind: OUTPUT, handler: null, next: [], column: this.sink, where: 'the result' });
    }
    return steps;
  }

  // The steps that an item runs into when one of a reader's inputs gives it on.
  into(node, from) {
    if (this.cuts.has(node.id)) return this.cutSteps(node);
    const { id, op } = node;
    switch (op) {
      case 'to': {
        const column = columnsByName.get(node.stream);
        if (column === undefined) throw new InternalFault(`stream ${node.stream} is not among the declared outputs`);
        return [{ kind: OUTPUT, handler: null, next: [], column, where: `to(${stringify(node.stream)})` }];
      }
      case 'merge':
        return this.after(node);
      case 'branch': {
        if (node.place !== 0) return [];
        const group = nodes.filter((other) => other.op === 'branch' && other.of === node.of);
        return this.operate(new Branch(group.map((other) => [handlers[other.id], this.after(other)])));
      }
      case 'onTimer':
        this.addUserTimer(node);
        return [];
      case 'join': {
        const side = node.inputs.indexOf(from);
        if (node.join === 'table') return side === 0 ? this.operate(this.operatorOf(node)) : [];
        return this.operate(new JoinSide(this.operatorOf(node), side));
      }
      case 'keyBy':
        throw new InternalFault(`the plan of this stage does not cut the graph at keyBy in line ${node.line}`);
      default: {
        const kind = KINDS.indexOf(op);
        if (kind >= 0) return [{ kind, handler: handlers[id], next: this.after(node), column: null }];
        return this.operate(this.operatorOf(node));
      }
    }
  }

  operate(operator) {
    return [{ kind: OPERATOR, handler: null, next: [], operator }];
  }

  operatorOf(node) {
    let operator = this.operators.get(node.id);
    if (operator !== undefined) return operator;
    const made = handlers[node.id];
    if (node.op === 'window') operator = new Window(node, made, this.behind(node));
    else if (node.op === 'dedupe') operator = new Dedupe(node, made);
    else if (node.op !== 'join') operator = new PerKey(node, made);
    else if (node.join === 'table') operator = new TableJoin(node, made);
    else operator = new StreamJoin(node, made, this.behind(node));
    this.operators.set(node.id, operator);
    if (typeof operator.fire === 'function') timerOperators.set(node.name, operator);
    operator.next = this.after(node);
    return operator;
  }

  addUserTimer(node) {
    if (this.operators.has(node.id)) return;
    this.operators.set(node.id, this.userTimers);
    this.userTimers.steps.push({ kind: 0, handler: handlers[node.id], next: this.after(node), column: null });
    if (userOperator === null) userOperator = node.name;
    timerOperators.set(node.name, this.userTimers);
  }

  cutSteps(node) {
    return this.cuts.get(node.id).map((cut) => this.operate(new Cut(node, cut))[0]);
  }

  // By how much the results that reach a node may be behind the watermark, for the windows and joins of this stage before it.
  behind(node) {
    if (this.entered.has(node.id)) return 0;
    const known = this.behinds.get(node.id);
    if (known !== undefined) return known;
    let most = 0;
    for (let i = 0; i < node.inputs.length; i++) {
      const input = nodes[node.inputs[i]];
      let of = this.behind(input);
      if (input.op === 'window') of += input.window.grace_ms + 1;
      if (input.op === 'join' && input.join === 'stream') of += input.within_ms + 1;
      if (of > most) most = of;
    }
    this.behinds.set(node.id, most);
    return most;
  }

  // Whether each event of an input counts for the watermark by the time it came with: nothing on its way has a time of its own.
  notesAtEntry(input) {
    if (!spec.plan.timed || input.table || input.internal) return false;
    const seen = new Set();
    const waiting = Array.from(input.nodes);
    let timed = 0;
    while (waiting.length > 0) {
      const id = waiting.pop();
      if (seen.has(id)) continue;
      seen.add(id);
      const { op, join } = nodes[id];
      if (this.cuts.has(id)) {
        const cuts = this.cuts.get(id);
        for (let i = 0; i < cuts.length; i++) {
          if (cuts[i].timed) timed += 1;
          if (cuts[i].timed && cuts[i].time_of !== null && handlers[cuts[i].time_of].time !== null) return false;
        }
        continue;
      }
      if (op === 'window' || (op === 'join' && join === 'stream')) {
        timed += 1;
        if (handlers[id].time !== null) return false;
        continue; // what comes after it has the time of its results
      }
      for (let i = 0; i < this.readers[id].length; i++) waiting.push(this.readers[id][i].id);
    }
    if (timed > 0) return true;
    return !this.holdsTime();
  }

  // Whether something of this stage takes event time from its items.
  holdsTime() {
    for (const [id, operator] of this.operators) if (nodes[id].op !== 'onTimer' && typeof operator.fire === 'function') return true;
    for (const cuts of this.cuts.values()) if (cuts.some((cut) => cut.timed)) return true;
    return false;
  }
}

function buildStage() {
  sealed = true;
  const builder = new StageBuilder();
  for (let i = 0; i < builder.inputs.length; i++) entries.push(builder.entriesOf(builder.inputs[i]));
  for (let i = 0; i < builder.inputs.length; i++) notesAtEntry.push(builder.notesAtEntry(builder.inputs[i]));
  timerSteps = builder.operate(new TimerEntry());
}

class Branch {
  constructor(ways) {
    this.ways = ways; // [predicate, steps]
  }

  run(item, context) {
    return this.from(0, item, context);
  }

  from(start, item, context) {
    if (start === this.ways.length) return undefined;
    const [predicate, steps] = this.ways[start];
    return after(predicate(item, context), (matches) => (matches ? runSteps(steps, item, context) : this.from(start + 1, item, context)));
  }
}

// Where the stage ends: the item goes to the next one, by its new key and with its event time.
class Cut {
  constructor(node, cut) {
    this.where = `the key of keyBy${node.line > 0 ? ` (line ${node.line})` : ''}`;
    this.by = cut.rekey ? handlers[node.id] : null;
    this.time = cut.time_of === null ? null : handlers[cut.time_of].time;
    this.timeName = cut.time_of === null ? '' : `${nodes[cut.time_of].name}: time`;
    this.timed = cut.timed;
    this.column = columns[cut.output];
    if (this.column === undefined || this.column.times === null) {
      throw new InternalFault(`the plan cuts the graph at node ${cut.node} without an internal stream`);
    }
  }

  run(item, context) {
    // Copied as it is: under the event's key, or by the path that the stream has.
    if (this.by === null) return this.send(item, undefined, context);
    return after(this.by(item, context), (key) => this.send(item, outputKey(key, this.where), context));
  }

  send(item, keyText, context) {
    return withTime(this.time, item, context, this.timeName, (at) => {
      if (this.timed) noteTime(at, context);
      this.column.addTimed(item, keyText, at, 'what goes to the next stage');
      return undefined;
    });
  }
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
  if (step.kind === OUTPUT) {
    if (step.column !== null) step.column.add(item, undefined, step.where);
    return undefined;
  }
  if (step.kind === OPERATOR) return step.operator.run(item, context);
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

function spreadFrom(step, items, start, context) {
  for (let i = start; i < items.length; i++) {
    const waiting = runSteps(step.next, items[i], context);
    if (waiting !== undefined) return waiting.then(() => spreadFrom(step, items, i + 1, context));
  }
  return undefined;
}

function* takeAtMost(iterable) {
  let taken = 0;
  for (const item of iterable) {
    if (taken++ >= outputsPerEvent) throw new RangeError(`flatMap gave more than ${outputsPerEvent} items (outputs_per_event)`);
    yield item;
  }
}
