// HMAC-SHA-256, for shared access signatures. Browsers offer it on https and localhost only, so
// there is a plain one for other addresses.

export async function hmac(key, text) {
  const encoder = new TextEncoder();
  const octets = globalThis.crypto?.subtle
    ? await native(encoder.encode(key), encoder.encode(text))
    : plainHmac(encoder.encode(key), encoder.encode(text));
  return btoa(String.fromCharCode(...octets));
}

async function native(key, data) {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, [
    "sign",
  ]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, data));
}

export function plainHmac(key, data) {
  const block = new Uint8Array(64);
  block.set(key.length > 64 ? sha256(key) : key);
  const inner = sha256(
    joined(
      block.map((byte) => byte ^ 0x36),
      data,
    ),
  );
  return sha256(
    joined(
      block.map((byte) => byte ^ 0x5c),
      inner,
    ),
  );
}

function joined(first, second) {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

const ROUND = [];
const START = [];
(function primes() {
  const fraction = (value) => ((value - Math.floor(value)) * 4294967296) | 0;
  for (let candidate = 2; ROUND.length < 64; candidate += 1) {
    let isPrime = true;
    for (let divisor = 2; divisor * divisor <= candidate; divisor += 1)
      if (candidate % divisor === 0) isPrime = false;
    if (!isPrime) continue;
    if (START.length < 8) START.push(fraction(Math.sqrt(candidate)));
    ROUND.push(fraction(Math.cbrt(candidate)));
  }
})();

export function sha256(message) {
  const length = message.length;
  const padded = new Uint8Array(((length + 72) >> 6) << 6);
  padded.set(message);
  padded[length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(length / 536870912));
  view.setUint32(padded.length - 4, (length << 3) >>> 0);
  const state = [...START];
  const words = new Int32Array(64);
  const turn = (value, by) => (value >>> by) | (value << (32 - by));
  for (let offset = 0; offset < padded.length; offset += 64) {
    for (let i = 0; i < 16; i += 1) words[i] = view.getInt32(offset + 4 * i);
    for (let i = 16; i < 64; i += 1) {
      const early = words[i - 15],
        late = words[i - 2];
      const first = turn(early, 7) ^ turn(early, 18) ^ (early >>> 3);
      const second = turn(late, 17) ^ turn(late, 19) ^ (late >>> 10);
      words[i] = (words[i - 16] + first + words[i - 7] + second) | 0;
    }
    let [a, b, c, d, e, f, g, last] = state;
    for (let i = 0; i < 64; i += 1) {
      const one =
        (last + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUND[i] + words[i]) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      last = g;
      g = f;
      f = e;
      e = (d + one) | 0;
      d = c;
      c = b;
      b = a;
      a = (one + two) | 0;
    }
    [a, b, c, d, e, f, g, last].forEach((value, i) => {
      state[i] = (state[i] + value) | 0;
    });
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((value, i) => digest.setInt32(4 * i, value));
  return new Uint8Array(digest.buffer);
}
