// console.*: lines for `jeet logs`, kept even if their event fails, bounded for each event and each batch.

const MAX_BATCH_LOG = 1048576;
let logLimit = 65536;
let logSerial = 0;
let logUsed = 0;
let batchLogUsed = 0;
let logCut = false;
const logLines = []; // [index, level, message]

function show(value, depth, seen) {
  switch (typeof value) {
    case 'string': return depth === 0 ? value : stringify(value);
    case 'undefined': return 'undefined';
    case 'number': return value === 0 && 1 / value < 0 ? '-0' : `${value}`;
    case 'bigint': return `${value}n`;
    case 'symbol': return String(value);
    case 'function': return `[function ${value.name || 'anonymous'}]`;
    case 'boolean': return `${value}`;
    default:
  }
  if (value === null) return 'null';
  for (let c = 0; c < collections.length; c++) {
    if (collections[c].table.object === value) return `[state.${collections[c].name}]`;
  }
  if (value === state) return '[state]';
  if (value instanceof Error) return `${value.name}: ${value.message}${value.stack ? `\n${userStack(value.stack)}` : ''}`;
  if (value instanceof NativeDate) return value.getTime() === value.getTime() ? value.toISOString() : 'Invalid Date';
  if (seen.includes(value)) return '[circular]';
  if (depth > 4) return isArray(value) ? '[…]' : '{…}';
  seen.push(value);
  const parts = [];
  let text;
  if (isArray(value)) {
    for (let i = 0; i < value.length && i < 100; i++) parts.push(show(value[i], depth + 1, seen));
    if (value.length > 100) parts.push(`… ${value.length - 100} more`);
    text = `[${parts.join(', ')}]`;
  } else {
    const tag = apply(classOf, value, []).slice(8, -1);
    if (value instanceof Map) {
      for (const [k, v] of value) parts.push(`${show(k, depth + 1, seen)} => ${show(v, depth + 1, seen)}`);
    } else if (value instanceof Set) {
      for (const v of value) parts.push(show(v, depth + 1, seen));
    }
    const names = keysOf(value);
    for (let i = 0; i < names.length && i < 100; i++) {
      parts.push(`${/^[A-Za-z_$][\w$]*$/.test(names[i]) ? names[i] : stringify(names[i])}: ${show(value[names[i]], depth + 1, seen)}`);
    }
    if (names.length > 100) parts.push(`… ${names.length - 100} more`);
    text = `${tag === 'Object' ? '' : `${tag} `}{${parts.length > 0 ? ` ${parts.join(', ')} ` : ''}}`;
  }
  seen.pop();
  return text;
}

function log(level, values) {
  if (logSerial !== shared[SERIAL]) {
    logSerial = shared[SERIAL];
    logUsed = 0;
    logCut = false;
  }
  if (logCut) return;
  const parts = [];
  for (let i = 0; i < values.length; i++) {
    try {
      parts.push(show(values[i], 0, []));
    } catch (error) {
      parts.push('[a value that cannot be shown]');
    }
  }
  let message = parts.join(' ');
  const room = logLimit - logUsed < MAX_BATCH_LOG - batchLogUsed ? logLimit - logUsed : MAX_BATCH_LOG - batchLogUsed;
  if (message.length > room) {
    message = `${message.slice(0, room < 0 ? 0 : room)}… [cut: an event may log ${logLimit} bytes (log_bytes), a batch ${MAX_BATCH_LOG}]`;
    logCut = true;
  }
  logUsed += message.length + 16;
  batchLogUsed += message.length + 16;
  logLines.push([shared[SERIAL] === 0 ? -1 : shared[INDEX], level, message]);
}

const userConsole = {
  log(...values) { log('info', values); },
  info(...values) { log('info', values); },
  debug(...values) { log('debug', values); },
  trace(...values) { log('debug', values); },
  warn(...values) { log('warning', values); },
  error(...values) { log('error', values); },
  dir(value) { log('info', [value]); },
  table(value) { log('info', [value]); },
  assert(condition, ...values) { if (!condition) log('error', ['Assertion failed:', ...values]); },
  group(...values) { log('info', values); },
  groupEnd() {},
  time() {},
  timeEnd() {},
  count() {},
};
