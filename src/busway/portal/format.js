// Numbers, sizes and times as people read them.

const counts = new Intl.NumberFormat("en");

export const count = (value) => (value === null || value === undefined ? "–" : counts.format(value));

export const messages = (number) => `${count(number)} ${number === 1 ? "message" : "messages"}`;

export function rate(perSecond) {
  if (perSecond === null) return "–";
  if (perSecond === 0) return "0/s";
  if (perSecond < 10) return `${perSecond.toFixed(1)}/s`;
  return `${counts.format(Math.round(perSecond))}/s`;
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  const steps = [
    ["d", 86400000],
    ["h", 3600000],
    ["min", 60000],
    ["s", 1000],
  ];
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const parts = [];
  for (const [name, length] of steps) {
    const whole = Math.floor(ms / length);
    if (whole) {
      parts.push(`${whole} ${name}`);
      ms -= whole * length;
    } else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

export function time(iso) {
  if (!iso) return "–";
  return iso.replace("T", " ").replace(/(\.\d{3})?Z$/, "");
}

const ISO = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/;
const FOR_EVER_DAYS = 10000000;

// Of an ISO 8601 duration, as management writes them; null for anything else.
export function secondsOf(iso) {
  const found = ISO.exec(iso);
  if (!found) return null;
  const [days, hours, minutes, seconds] = found.slice(1).map((part) => Number(part || 0));
  return ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
}

// P10675199DT2H48M5.4775807S is "never".
export function duration(iso) {
  if (!iso) return "–";
  const seconds = secondsOf(iso);
  if (seconds === null) return iso;
  return seconds > FOR_EVER_DAYS * 86400 ? "never" : span(seconds * 1000);
}

// "10s", "5m", "2h", "14d" or ISO itself, to ISO; throws for anything else.
export function toDuration(text) {
  const plain = text.trim();
  if (/^P/i.test(plain)) return plain.toUpperCase();
  const found = /^(\d+(?:\.\d+)?)\s*(s|m|min|h|d)$/i.exec(plain);
  if (!found) throw new Error(`"${text}" is not a duration. Write 30s, 5m, 2h or 14d.`);
  const unit = found[2].toLowerCase();
  return unit === "d" ? `P${found[1]}D` : `PT${found[1]}${unit === "s" ? "S" : unit === "h" ? "H" : "M"}`;
}

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

// Null where it is no UTF-8. A text that was cut may end within a character.
export function textOf(bytes, { isCut = false } = {}) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: isCut });
  } catch {
    return null;
  }
}

export function hexOf(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += 16) {
    const row = [...bytes.slice(start, start + 16)];
    const hex = row
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join(" ")
      .padEnd(47);
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${start.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  return lines.join("\n");
}

// The address of an entity in the portal, of one of its views, with what is asked of that.
export function entityHref(path, view = "", query = {}) {
  const asked = new URLSearchParams(
    Object.entries(query).filter(([, value]) => value !== null && value !== ""),
  );
  const tail = asked.size ? `?${asked}` : "";
  return `#/entity/${encodeURIComponent(path)}${view && `/${view}`}${tail}`;
}

export const shortPath = (path) => path.replace("/Subscriptions/", " › ");

// What somebody has typed as JSON; nothing typed is an empty object.
export function jsonObject(what, text) {
  if (!text.trim()) return {};
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} are no JSON: ${error.message}`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value))
    throw new Error(`${what} must be a JSON object, such as {"amount": 5}.`);
  return value;
}
