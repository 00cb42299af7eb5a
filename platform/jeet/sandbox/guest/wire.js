// The channel to the host: framed messages over Javy.IO, which carries them through WASI fd_read(0) and fd_write(2).
//
// To the host:   0x00 'J' op 0, length (u32 little-endian), payload.
// From the host: total (u32), sections (u32), the length of each section (u32), the sections.
// A plugin's own stderr text never starts with 0x00 0x4A, so the host tells the two apart.

const { readSync, writeSync } = Javy.IO;

const OP_SHARED = 1;
const OP_READ = 2;
const OP_SCAN = 3;
const OP_COLLECTION = 4;
const OP_RESULT = 5;
const OP_ANSWER = 6;
const OP_PROGRESS = 7;
const OP_TIME = 8;

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const KEPT_BUFFER = 4194304;
// A batch's columns are read while answers come in, so each has a buffer of its own: of at least 8192 bytes, so that a
// plugin's own buffering is passed by.
const COMMANDS = 0;
const ANSWERS = 1;
const inboxes = [new Uint8Array(65536), new Uint8Array(16384)];

function writeAll(bytes) {
  let done = writeSync(2, bytes);
  while (done < bytes.length) {
    const rest = bytes.subarray(done);
    const n = writeSync(2, rest);
    if (n <= 0) throw new InternalFault('the host took no bytes');
    done += n;
  }
}

// One write: user code may run this with hardly any stack left, and a frame must go out whole or not at all.
function send(op, bytes) {
  const message = new Uint8Array(8 + bytes.length);
  message[1] = 0x4a;
  message[2] = op;
  putU32(message, 4, bytes.length);
  message.set(bytes, 8);
  writeAll(message);
}

function putU32(bytes, at, value) {
  bytes[at] = value & 255;
  bytes[at + 1] = (value >>> 8) & 255;
  bytes[at + 2] = (value >>> 16) & 255;
  bytes[at + 3] = (value >>> 24) & 255;
}

const SENT_AT_ONCE = 262144; // a write costs more than copying this much

// A section is a text, bytes, or an area of the native parts by its number.
const sendSections = native === null ? sendInScript : sendNatively;

function sendNatively(op, sections) {
  const encoded = [];
  for (let i = 0; i < sections.length; i++) {
    const part = sections[i];
    encoded.push(typeof part === 'string' ? encoder.encode(part) : part);
  }
  native.sendAreas(op, encoded);
}

function sendInScript(op, sections) {
  const encoded = [];
  const start = 4 + 4 * sections.length;
  let length = start;
  for (let i = 0; i < sections.length; i++) {
    const part = sections[i];
    const bytes = typeof part === 'string' ? encoder.encode(part) : part;
    encoded.push(bytes);
    length += bytes.length;
  }
  const whole = length <= SENT_AT_ONCE;
  const message = new Uint8Array(8 + (whole ? length : start));
  message[1] = 0x4a;
  message[2] = op;
  putU32(message, 4, length);
  putU32(message, 8, sections.length);
  let at = 8 + start;
  for (let i = 0; i < encoded.length; i++) {
    putU32(message, 12 + 4 * i, encoded[i].length);
    if (whole) {
      message.set(encoded[i], at);
      at += encoded[i].length;
    }
  }
  writeAll(message);
  if (!whole) for (let i = 0; i < encoded.length; i++) if (encoded[i].length > 0) writeAll(encoded[i]);
}

function u32(bytes, at) {
  return (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0;
}

// One message of the host as byte sections, or null if it has none. The sections live until the next receive of their kind.
function receive(kind) {
  let bytes = inboxes[kind];
  let have = readSync(0, bytes);
  if (have <= 0) return null;
  while (have < 4) {
    const n = readSync(0, bytes.subarray(have));
    if (n <= 0) throw new InternalFault('a message of the host was cut off');
    have += n;
  }
  const total = u32(bytes, 0) + 4;
  if (total > bytes.length) {
    const larger = new Uint8Array(total);
    larger.set(bytes);
    if (total <= KEPT_BUFFER) inboxes[kind] = larger;
    bytes = larger;
  }
  while (have < total) {
    const n = readSync(0, bytes.subarray(have, total));
    if (n <= 0) throw new InternalFault('a message of the host was cut off');
    have += n;
  }
  const count = u32(bytes, 4);
  const sections = [];
  let at = 8 + 4 * count;
  for (let i = 0; i < count; i++) {
    const length = u32(bytes, 8 + 4 * i);
    sections.push(bytes.subarray(at, at + length));
    at += length;
  }
  return sections;
}

function ask(op, request) {
  send(op, encoder.encode(stringify(request)));
  return answerOf();
}

function answerOf() {
  const sections = receive(ANSWERS);
  if (sections === null) throw new InternalFault('the host gave no answer');
  return sections;
}

// Words shared with the host, which reads PROGRESS when it must know which event runs and writes STOP and TIME, and with
// the C of the built-in plugin (event.h has them in the same order). They are the one place that says which event runs.
const PROGRESS = 0; // index of the event that runs, for the host
const STOP = 1; // not 0: end the batch after this event
const TIME = 2; // database time, at most one tick old
const PROOF = 3; // shows that the host sees these very words
const SERIAL = 4; // of the running event; 0: none runs, and state may not be used
const SERIALS = 5; // the last serial that was given
const INDEX = 6; // of the running event in its batch
const BATCH = 7; // number of this batch
const COMMITTED = 8; // the last batch known to be committed
const BATCH_TIME = 9; // database time at the start of this batch
const TEXT_LENGTH = 10; // of this batch's outputs and state; past the bound the batch ends early
const CAREFUL = 11; // not 0: each text is checked here and not left to the host
const VALUE_LIMIT = 12; // bytes of a value of state
const KEY_LIMIT = 13; // bytes of a key
const CHANGES = 14; // not 0: the event changed state, and it is to be kept or undone
const LIVES = 15; // how many objects of state the event has in hand
const EVENT_TIME = 16; // database time as the event EVENT_TIME_OF sees it
const EVENT_TIME_OF = 17;
const EXACT_TIME_OF = 18; // the event for which the host was asked
const shared = native === null ? new Float64Array(24) : native.eventWords();

function shareWords() {
  shared[PROOF] = 12345;
  // The words themselves are the payload: the host takes the address that it is given.
  writeAll(new Uint8Array([0, 0x4a, OP_SHARED, 0, 8 * shared.length, 0, 0, 0]));
  writeAll(new Uint8Array(shared.buffer));
  shared[PROOF] = 67890;
  const seen = parse(decoder.decode(ask(OP_TIME, null)[0]));
  return seen.shared;
}
