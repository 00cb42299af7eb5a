// Math.random and crypto, seeded by the event's place in the log, so that a replay draws the same numbers.
// The generator is sfc32; it is seeded at the first draw of an event.

let randomSerial = 0;
let ra = 0;
let rb = 0;
let rc = 0;
let rd = 0;

function draw32() {
  if (deterministic && (randomSerial !== shared[SERIAL] || shared[SERIAL] === 0)) seedRandom();
  const t = (ra + rb + rd) | 0;
  rd = (rd + 1) | 0;
  ra = rb ^ (rb >>> 9);
  rb = (rc + (rc << 3)) | 0;
  rc = ((rc << 21) | (rc >>> 11)) + t | 0;
  return t >>> 0;
}

function seedRandom() {
  if (randomSerial === shared[SERIAL] && randomSerial !== 0) return;
  const offset = shared[SERIAL] === 0 ? 0 : batch.offsetAt(shared[INDEX]);
  if (shared[SERIAL] !== 0 || randomSerial !== -1) {
    ra = spec.partition | 0;
    rb = offset | 0;
    rc = floor(offset / 4294967296) | 0;
    rd = 1 + batch.input;
    randomSerial = shared[SERIAL] === 0 ? -1 : shared[SERIAL];
    stir();
  }
}

function stir() {
  for (let i = 0; i < 15; i++) {
    const t = (ra + rb + rd) | 0;
    rd = (rd + 1) | 0;
    ra = rb ^ (rb >>> 9);
    rb = (rc + (rc << 3)) | 0;
    rc = ((rc << 21) | (rc >>> 11)) + t | 0;
  }
}

// For functions that want other numbers in each run: seeded by the host, and never again.
function seedOnce(words) {
  [ra, rb, rc, rd] = words;
  stir();
}

function random() {
  return ((draw32() >>> 5) * 67108864 + (draw32() >>> 6)) / 9007199254740992;
}

const HEX = '0123456789abcdef';

function randomUUID() {
  let text = '';
  for (let word = 0; word < 4; word++) {
    let bits = draw32();
    for (let digit = 0; digit < 8; digit++) {
      const at = word * 8 + digit;
      if (at === 8 || at === 12 || at === 16 || at === 20) text += '-';
      let nibble = bits & 15;
      if (at === 12) nibble = 4;
      if (at === 16) nibble = (nibble & 3) | 8;
      text += HEX[nibble];
      bits >>>= 4;
    }
  }
  return text;
}

function getRandomValues(array) {
  if (!ArrayBuffer.isView(array)) throw new TypeError('crypto.getRandomValues takes a typed array');
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  for (let i = 0; i < bytes.length; i++) bytes[i] = draw32() & 255;
  return array;
}
