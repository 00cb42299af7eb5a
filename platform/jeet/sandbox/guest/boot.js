// Sets the stage for user code, and the one entry through which the host drives this instance.
//
// `__jeet()` takes a message from the host and acts on it; `__jeet(exports)` is what a rewritten module calls at its
// end. User code may call it too and harms nobody but itself: the host only listens when it has asked.

let spec = { function: '', version: 0, partition: 0, sink: false, plan: { inputs: [], cuts: [], timed: false, delay_ms: 0 } };
let moduleExports = null;
let busy = false;

function open(sections) {
  spec = parse(decoder.decode(sections[0]));
  depthLimit = spec.limits.depth;
  shared[KEY_LIMIT] = spec.limits.key_bytes;
  shared[VALUE_LIMIT] = spec.limits.state_value_bytes;
  outputLimit = spec.limits.output_bytes;
  outputsPerEvent = spec.limits.outputs_per_event;
  logLimit = spec.limits.log_bytes;
  mustSettle = spec.settle;
  tables.bounds(spec.cache_entries, spec.cache_bytes);
  declareOutputs(spec.outputs);
}

function takeExports(exports) {
  if (moduleExports !== null) throw new Error('the exports of this module were already handed over');
  moduleExports = exports;
}

function useExports() {
  if (moduleExports === null && native !== null) moduleExports = native.namespace(); // a .wasm, its source not rewritten
  const handler = moduleExports === null ? undefined : moduleExports.default;
  if (handler !== undefined) {
    if (typeof handler !== 'function') {
      throw new TypeError(`export default must be a function (event, context) => …, not ${describeType(handler)}`);
    }
    if (nodes.length > 1) throw new TypeError('use either export default or stream.…, not both');
    useDefault(handler);
  }
  if (nodes.length === 1) {
    if (!spec.rewritten && native === null) {
      throw new TypeError(
        'nothing to run: this plugin does not show the exports of a .wasm, so export default and export const config are' +
        ' not seen; declare the graph with stream.…, give the settings to deploy, or deploy the .js',
      );
    }
    throw new TypeError('nothing to run: call stream.map(…) or another stream operator, or export default a function');
  }
}

function describeModule() {
  useExports();
  checkGraph();
  useMigrate();
  const config = configOf();
  const text = config === null ? 'null' : jsonText(config, 'config', 1048576, 'config_bytes');
  return [stringify({ graph: nodes, migrates: migrate !== null }), text];
}

function configOf() {
  const config = moduleExports === null || moduleExports.config === undefined ? null : moduleExports.config;
  if (config !== null && (typeof config !== 'object' || isArray(config))) {
    throw new TypeError(`config must be an object, not ${describeType(config)}`);
  }
  if (config !== null && config.deterministic !== undefined && typeof config.deterministic !== 'boolean') {
    throw new TypeError(`config.deterministic must be true or false, not ${describeType(config.deterministic)}`);
  }
  return config;
}

function prepare() {
  useExports();
  useMigrate();
  const config = configOf();
  if (config !== null && config.deterministic === false) {
    deterministic = false;
    seedOnce(spec.seed);
  }
  buildStage();
  const [first] = entries[0];
  const alone = spec.plan.inputs.length === 1 && entries[0].length === 1 && !spec.plan.timed && userOperator === null;
  if (alone && first.kind === 0 && first.next.length === 1 && first.next[0].kind === OUTPUT) {
    only = first;
    handlerTakesContext = takesContext(first.handler);
  }
  return [stringify(Array.from(timerOperators.keys())), `${migrate !== null}`];
}

function answer(act) {
  let sections;
  try {
    sections = ['true'].concat(act());
  } catch (error) {
    sections = ['false'].concat(describeError(error));
  }
  sendSections(OP_ANSWER, sections);
}

function serve() {
  const sections = receive(COMMANDS);
  if (sections === null) return;
  const command = decoder.decode(sections[0]);
  const rest = sections.slice(1);
  switch (command) {
    case 'batch':
      runBatch(rest);
      break;
    case 'who':
      answer(() => [`${changedBy(...parse(decoder.decode(rest[0])))}`]);
      break;
    case 'wait':
      if (rest[0].length > 0) shared[STOP] = 1; // short calls may never meet a tick
      giveUpWaiting();
      break;
    case 'open':
      answer(() => { open(rest); return []; });
      break;
    case 'prepare':
      answer(prepare);
      break;
    case 'describe':
      answer(describeModule);
      break;
    default:
      answer(() => { throw new InternalFault(`no such command: ${command}`); });
  }
}

function entry(exports) {
  if (exports !== undefined) {
    takeExports(exports);
    return;
  }
  if (busy) return;
  busy = true;
  try {
    serve();
  } finally {
    busy = false;
  }
}

function removeBackDoors() {
  const keep = [
    'Object', 'Function', 'Error', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError', 'TypeError', 'URIError',
    'InternalError', 'AggregateError', 'SuppressedError', 'Iterator', 'Array', 'parseInt', 'parseFloat', 'isNaN', 'isFinite',
    'queueMicrotask', 'decodeURI', 'decodeURIComponent', 'encodeURI', 'encodeURIComponent', 'escape', 'unescape', 'Infinity',
    'NaN', 'undefined', 'Number', 'Boolean', 'String', 'Math', 'Reflect', 'Symbol', 'eval', 'globalThis', 'Date', 'RegExp',
    'JSON', 'Proxy', 'Map', 'Set', 'WeakMap', 'WeakSet', 'ArrayBuffer', 'SharedArrayBuffer', 'Uint8ClampedArray', 'Int8Array',
    'Uint8Array', 'Int16Array', 'Uint16Array', 'Int32Array', 'Uint32Array', 'BigInt64Array', 'BigUint64Array', 'Float16Array',
    'Float32Array', 'Float64Array', 'DataView', 'Promise', 'BigInt', 'TextDecoder', 'TextEncoder', 'DisposableStack',
    'AsyncDisposableStack', 'Atomics', 'btoa', 'atob',
  ];
  const names = ownKeys(globalThis);
  for (let i = 0; i < names.length; i++) {
    if (typeof names[i] === 'string' && keep.includes(names[i])) continue;
    if (!Reflect.deleteProperty(globalThis, names[i])) {
      const own = getOwnPropertyDescriptor(globalThis, names[i]);
      if ('value' in own && own.writable) globalThis[names[i]] = undefined;
    }
  }
}

function boot() {
  removeBackDoors();
  Math.random = random;
  replaceDate();
  freezeIntrinsics();
  // What user code sees beside the language.
  const crypto = { randomUUID, getRandomValues };
  hidden(globalThis, 'crypto', crypto);
  hidden(globalThis, 'console', userConsole);
  hidden(globalThis, 'stream', stream);
  hidden(globalThis, 'state', state);
  hidden(globalThis, '__jeet', entry);
  if (native !== null) native.register('__jeet', entry);
  freeze(contextPrototype);
  freeze(crypto);
  freeze(userConsole);
  freeze(entry);
  freeze(Stream.prototype);
  freeze(StreamTable.prototype);
  freeze(Windowed.prototype);
  shareWords();
}

boot();
