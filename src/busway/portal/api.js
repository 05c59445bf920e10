// The server's public HTTP interface, with the key of the person who signed in. The key is kept in
// this tab alone (sessionStorage), and each request carries a signature made from it in a header.
import { hmac } from "./signing.js";

const STORED = "busway.key";
const LASTS_S = 600;

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

let signedIn = JSON.parse(sessionStorage.getItem(STORED) || "null");
let token = null;

export const isSignedIn = () => signedIn !== null;
export const signedInAs = () => signedIn?.name;
export const ownEntity = () => signedIn?.entity || null;

export function signIn(text) {
  const wanted = { name: "RootManageSharedAccessKey", key: text.trim(), entity: null };
  if (text.includes("=") && /SharedAccessKey\s*=/i.test(text)) {
    const fields = Object.fromEntries(
      text
        .trim()
        .split(";")
        .filter(Boolean)
        .map((part) => {
          const at = part.indexOf("=");
          return [part.slice(0, at).trim().toLowerCase(), part.slice(at + 1).trim()];
        }),
    );
    wanted.name = fields.sharedaccesskeyname || wanted.name;
    wanted.key = fields.sharedaccesskey;
    wanted.entity = fields.entitypath || null;
  }
  if (!wanted.key)
    throw new Error("That has no key. Paste a connection string, or the key of RootManageSharedAccessKey.");
  signedIn = wanted;
  token = null;
  sessionStorage.setItem(STORED, JSON.stringify(wanted));
}

export function signOut() {
  sessionStorage.removeItem(STORED);
  signedIn = null;
  token = null;
}

// After the key in use was renewed.
export function keepKey(key) {
  signIn(`SharedAccessKeyName=${signedIn.name};SharedAccessKey=${key}`);
}

export const usedKey = () => signedIn?.key;

// For programs: every port of the server speaks AMQP, so the address of this page will do.
export function connectionString(name = signedIn.name, key = signedIn.key, entity = signedIn.entity) {
  const isPlain = location.protocol === "http:";
  const port = location.port || (isPlain ? 80 : 443);
  return (
    `Endpoint=sb://${location.hostname}:${port};SharedAccessKeyName=${name};SharedAccessKey=${key};` +
    (entity ? `EntityPath=${entity};` : "") +
    (isPlain ? "UseDevelopmentEmulator=true;" : "")
  );
}

async function authorization() {
  const now = Math.floor(Date.now() / 1000);
  if (token === null || token.expires < now + 60) {
    const path = signedIn.entity ? encodeURI(signedIn.entity) : "";
    const resource = encodeURIComponent(`${location.origin}/${path}`);
    const expires = now + LASTS_S;
    const signature = encodeURIComponent(await hmac(signedIn.key, `${resource}\n${expires}`));
    const name = encodeURIComponent(signedIn.name);
    token = {
      expires,
      text: `SharedAccessSignature sr=${resource}&sig=${signature}&se=${expires}&skn=${name}`,
    };
  }
  return token.text;
}

export async function request(method, path, { body = null, headers = {} } = {}) {
  let reply;
  try {
    reply = await fetch(path, {
      method,
      body,
      headers: { ...headers, Authorization: await authorization() },
      redirect: "error",
      cache: "no-store",
      credentials: "omit",
    });
  } catch {
    throw new ApiError(0, "The server cannot be reached. Is it running?");
  }
  if (reply.ok) return reply;
  const told = plain(await reply.text(), reply.headers.get("Content-Type") || "");
  throw new ApiError(reply.status, told || `The server answered ${reply.status}.`);
}

// What an error says, without what is for programs only.
function plain(text, type) {
  if (type.includes("json")) return JSON.parse(text).detail ?? text;
  const xml = new DOMParser().parseFromString(text, "application/xml");
  return (xml.querySelector("Detail")?.textContent || text)
    .replace(/^SubCode=\d+\.\s*/, "")
    .replace(/\s*(To know more visit|TrackingId:)[\s\S]*$/, "");
}

export async function get(path) {
  return (await request("GET", path)).json();
}

export async function send(method, path, value) {
  const reply = await request(method, path, {
    body: value === undefined ? null : JSON.stringify(value),
    headers: { "Content-Type": "application/json" },
  });
  const text = await reply.text();
  return text ? JSON.parse(text) : null;
}

export const pathOf = (entity) => `/${entity.split("/").map(encodeURIComponent).join("/")}`;
